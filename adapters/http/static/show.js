// Shows the OpenAPI document with Swagger UI, in place of what the page says without it.
(async () => {
  // Swagger UI has a dark style, and leaves it to the page when it is used.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", follow);
  follow();
  const response = await fetch("openapi.json");
  const spec = await response.json();
  // Without servers, requests go to where the page came from. The public base URL may be another
  // host, and the token must not reach one.
  delete spec.servers;
  // One field for the token is enough: this is a second way to send it.
  delete spec.components.securitySchemes.apikey;
  // The demo's link to this page brings a token. On other machines nothing but a person does.
  const isHere = ["127.0.0.1", "localhost"].includes(location.hostname);
  const token = isHere && location.hash.startsWith("#token=") && location.hash.slice("#token=".length);
  if (token) history.replaceState(null, "", location.pathname);
  // What clients do not call is closed at first.
  const isShown = (original) => (_, key, isOpen) => original(key, isOpen && key[1] !== "Service");
  const ui = SwaggerUIBundle({
    spec,
    plugins: [{ statePlugins: { layout: { wrapSelectors: { isShown } } } }],
    onComplete: () => token && ui.preauthorizeApiKey("accessToken", token),
    dom_id: "#docs",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    // The token is forgotten when the page is left.
    persistAuthorization: false,
    tryItOutEnabled: true,
    // No other host is asked to validate the document.
    validatorUrl: null,
  });
})();
