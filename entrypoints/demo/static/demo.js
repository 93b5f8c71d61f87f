// Opens the guest's window over its place, and the desk's beside it, and shows what is new. Without
// JavaScript, both are tabs: reload the page.
"use strict";

const add = document.getElementById("add");

for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", () => {
    const left = window.screenX + window.outerWidth - (390 + 24) * (form.target === "desk" ? 2 : 1);
    const height = document.getElementById("place").offsetHeight || 780;
    window.open("", form.target, `popup,width=390,height=${height},left=${left},top=${window.screenY + 170}`);
  });
}

// Once the form has been sent: the next card is another visit.
add?.addEventListener("submit", () => setTimeout(() => { add.elements.visit.value = crypto.randomUUID(); }));

const show = (fresh) => {
  for (const shown of document.querySelectorAll("#summary, #cards, #waiting, #over")) {
    const now = fresh.getElementById(shown.id);
    if (shown.innerHTML !== now.innerHTML) shown.replaceChildren(...now.childNodes);
  }
  const steps = document.getElementById("steps");
  if (document.getElementById("over")?.textContent) setTimeout(() => window.close(), 5000);
  if (!steps) return;
  const now = fresh.getElementById("steps");
  if (steps.dataset.session !== now.dataset.session) steps.replaceChildren();
  steps.dataset.session = now.dataset.session;
  // Only the new ones, which a screen reader then reads out.
  for (const step of [...now.children].slice(steps.children.length)) {
    steps.append(step);
    // By its name: this page may have been loaded again.
    if (step.classList.contains("closes")) window.open("", add.target)?.close();
  }
};

const look = async () => {
  try {
    const response = await fetch(location.href);
    show(new DOMParser().parseFromString(await response.text(), "text/html"));
    setTimeout(look, 400);
  } catch {
    document.getElementById("summary").textContent = "The demo has stopped. Start it, and reload this page.";
  }
};
look();
