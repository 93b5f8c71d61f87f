// Shows each new state of the front desk's page without a reload, so that the focus stays.
"use strict";

const SECONDS = 3;
const RELOAD_AFTER_SECONDS = 60;

let answeredAt = Date.now();

const refresh = async () => {
  let response, text;
  try {
    response = await fetch(location.href, { cache: "no-store" });
    text = await response.text();
  } catch {
    return later();
  }
  // Too many requests, or the service has a problem: try again.
  if (response.status === 429 || response.status >= 500) {
    return later(Number(response.headers.get("Retry-After")) || SECONDS);
  }
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const parts = [...document.querySelectorAll("[data-live]")];
  // The link has ended, or a proxy sent another page. The reloaded page says which.
  if (!response.ok || !parts.every(({ id }) => fresh.getElementById(id))) return location.reload();
  answeredAt = Date.now();
  for (const part of parts) {
    const { innerHTML } = fresh.getElementById(part.id);
    if (innerHTML === part.innerHTML) continue;
    const hadFocus = part.contains(document.activeElement);
    part.innerHTML = innerHTML;
    if (hadFocus) document.getElementById("state").focus();
  }
  // A final page has no script.
  if (fresh.querySelector("script")) later();
};

const later = (seconds = SECONDS) => {
  // Do not go on showing an old state, or a card.
  if (Date.now() - answeredAt > RELOAD_AFTER_SECONDS * 1000) return location.reload();
  setTimeout(refresh, seconds * 1000);
};

later();
