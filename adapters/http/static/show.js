// Shows the OpenAPI document with Swagger UI, in place of what the page says without it.
(async () => {
  const response = await fetch("openapi.json");
  const spec = await response.json();
  // Without servers, requests go to where the page came from. The public base URL may be another
  // host, and the token must not reach one.
  delete spec.servers;
  // One field for the token is enough: this is a second way to send it.
  delete spec.components.securitySchemes.apikey;
  SwaggerUIBundle({
    spec,
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
