// Shows each new state of the front desk's page without a reload, so that the focus stays.
"use strict";

const SECONDS = 3;

const refresh = async () => {
  let text;
  try {
    const response = await fetch(location.href, { cache: "no-store" });
    // Too many requests, or the service is away: try again.
    if (response.status === 429 || response.status >= 500) return later();
    // The link is over. The reloaded page says why.
    if (!response.ok) return location.reload();
    text = await response.text();
  } catch {
    return later();
  }
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const { innerHTML } = fresh.getElementById(part.id);
    if (innerHTML === part.innerHTML) continue;
    const hadFocus = part.contains(document.activeElement);
    part.innerHTML = innerHTML;
    if (hadFocus) document.getElementById("state").focus();
  }
  // A final page has no script.
  if (fresh.querySelector("script")) later();
};

const later = () => setTimeout(refresh, SECONDS * 1000);

later();
