// Checks the form before it is sent. Without JavaScript the server does it.
"use strict";

for (const form of document.querySelectorAll("form")) {
  const waiting = form.querySelector("[data-waiting]");
  const texts = waiting && { false: waiting.textContent, true: waiting.dataset.waiting };
  // Later, because a disabled button would not be sent.
  const setSending = (isSending) => {
    for (const button of form.querySelectorAll("button")) button.disabled = isSending;
    if (waiting) waiting.textContent = texts[isSending];
    if (waiting && isSending) document.getElementById("status").textContent = texts[true];
  };
  form.addEventListener("submit", (event) => {
    if (!event.defaultPrevented) setTimeout(() => setSending(true), 0);
  });
  // The back button may restore the page as it was sent.
  window.addEventListener("pageshow", () => setSending(false));
}

const cardForm = document.querySelector("form[data-card-form]");
if (cardForm) {
  const { number, expiry, cvc, address, zipcode, country_code: country } = cardForm.elements;

  // Unicode lists the digits of a script one after the other, from 0 to 9. The digits of several
  // scripts may follow each other.
  const isDigit = (place) => /\p{Nd}/u.test(String.fromCodePoint(place));
  const digitOf = (character) => {
    const place = character.codePointAt(0);
    let first = place;
    while (isDigit(first - 1)) first -= 1;
    return (place - first) % 10;
  };

  // As `plain` in cards.py.
  const plain = (text) => text.normalize("NFKC").replace(/\p{Nd}/gu, digitOf)
    .replace(/[\p{Pd}\u2212\u30fc]/gu, "-").replace(/\p{Cf}/gu, "").replace(/\p{Zs}/gu, " ");

  const digitsOf = (text) => plain(text).replace(/[\s-]/g, "");

  const grouped = (text) => {
    const digits = digitsOf(text);
    return /^[0-9]*$/.test(digits) ? digits.replace(/(.{4})(?=.)/g, "$1 ") : text;
  };

  // Reads month and year as people, browsers and password managers write them: 09/31, 9 31, 0931,
  // 931, 09-2031, 2031-09. Returns null if the text is not a date.
  const readExpiry = (text) => {
    const monthFirst = plain(text).trim().replace(/^([0-9]{4})-([0-9]{2})$/, "$2/$1");
    const parts = /^([0-9]{2}|[2-9]|[0-9](?=[\s/.-]))[\s/.-]*([0-9]{2}|[0-9]{4})$/.exec(monthFirst);
    return parts && { month: Number(parts[1]), year: Number(parts[2].padStart(4, "20")) };
  };

  const writtenExpiry = (text) => {
    const date = readExpiry(text);
    const twoDigits = (part) => String(part % 100).padStart(2, "0");
    // A year of two digits is one of this century.
    return date && Math.floor(date.year / 100) === 20
      ? `${twoDigits(date.month)} / ${twoDigits(date.year)}`
      : text;
  };

  const passesLuhn = (digits) => {
    const sum = [...digits].reverse().reduce((total, digit, place) => {
      const value = place % 2 ? 2 * digit : Number(digit);
      return total + (value > 9 ? value - 9 : value);
    }, 0);
    return sum % 10 === 0;
  };

  const brandOf = (digits) => {
    if (/^4/.test(digits)) return "Visa";
    const start = Number(digits.slice(0, 4).padEnd(4, "0"));
    const isMastercard = /^5[1-5]/.test(digits) || (digits.length >= 4 && start >= 2221 && start <= 2720);
    return isMastercard ? "Mastercard" : "";
  };

  // Each returns the key of a message, or undefined if the field is valid.
  const faults = new Map([
    [number, () => {
      const digits = digitsOf(number.value);
      if (!digits) return "empty";
      if (!/^[0-9]{12,19}$/.test(digits)) return "form";
      if (!brandOf(digits)) return "brand";
      return passesLuhn(digits) ? undefined : "slip";
    }],
    [expiry, () => {
      const text = expiry.value.trim();
      if (!text) return "empty";
      const date = readExpiry(text);
      if (!date) return "form";
      if (date.month < 1 || date.month > 12) return "month";
      return date.year * 100 + date.month < Number(cardForm.dataset.thisMonth) ? "expired" : undefined;
    }],
    [cvc, () => {
      const text = plain(cvc.value).trim();
      if (!text) return "empty";
      return /^[0-9]{3}$/.test(text) ? undefined : "form";
    }],
  ]);
  if (country) {
    const needsPostalCode = () => !("withoutPostalCodes" in country.selectedOptions[0].dataset);
    faults.set(address, () => (address.value.trim() ? undefined : "empty"));
    faults.set(zipcode, () => (zipcode.value.trim() || !needsPostalCode() ? undefined : "empty"));
    faults.set(country, () => (country.value ? undefined : "empty"));

    // The browser knows the names of countries in the language of the page.
    const language = document.documentElement.lang;
    if (language !== "en") {
      const names = new Intl.DisplayNames([language], { type: "region" });
      const options = [...country.options].slice(1);
      for (const option of options) {
        option.textContent = names.of(option.value);
        option.removeAttribute("lang");
      }
      options.sort((one, other) => one.textContent.localeCompare(other.textContent, language));
      country.append(...options);
    }
  }

  const check = (field) => {
    const text = JSON.parse(field.dataset.messages)[faults.get(field)()] ?? "";
    const error = document.getElementById(`${field.id}-error`);
    error.textContent = text;
    error.hidden = !text;
    if (text) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
    return text;
  };

  // A message that appears while the button is pressed would move the button away from the pointer,
  // and the click would be lost. The submit event then shows the message.
  let isPressingButton = false;
  cardForm.addEventListener("pointerdown", (event) => {
    isPressingButton = event.target.closest("button") !== null;
  });

  // Fields are formatted when the guest leaves them, not while typing: a script that adds a slash
  // would meet guests who type their own.
  for (const [field, tidy] of [[number, grouped], [expiry, writtenExpiry], [cvc, (text) => plain(text).trim()]]) {
    field.addEventListener("change", () => { field.value = tidy(field.value); });
  }

  for (const field of faults.keys()) {
    field.addEventListener("change", () => field.value && !isPressingButton && check(field));
    field.addEventListener("input", () => {
      if (field.hasAttribute("aria-invalid") && !faults.get(field)()) check(field);
    });
  }

  cardForm.addEventListener("submit", (event) => {
    const wrong = [...faults.keys()].filter(check);
    if (!wrong.length) return;
    event.preventDefault();
    const summary = document.getElementById("summary");
    // One message stands beside its field.
    summary.hidden = wrong.length === 1;
    summary.querySelector("ul").replaceChildren(...wrong.map((field) => {
      const link = document.createElement("a");
      link.href = `#${field.id}`;
      link.textContent = document.getElementById(`${field.id}-error`).textContent;
      const item = document.createElement("li");
      item.append(link);
      return item;
    }));
    wrong[0].focus();
  }, { capture: true });

  // A key that says "next" goes to the next field. Only the last one sends the form.
  cardForm.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || event.target.enterKeyHint !== "next") return;
    event.preventDefault();
    const fields = [...cardForm.querySelectorAll("input:not([type=hidden]), select")];
    fields[fields.indexOf(event.target) + 1].focus();
  });

  const status = document.getElementById("status");
  const showBrand = () => {
    const brand = brandOf(digitsOf(number.value));
    for (const mark of document.querySelectorAll("[data-brand]")) {
      mark.classList.toggle("other", brand !== "" && mark.dataset.brand !== brand);
    }
    const said = brand && status.dataset.brand.replace("{brand}", brand);
    if (status.textContent !== said) status.textContent = said;
  };

  const onTyped = (event) => {
    // An IME writes the text that it composes again, so a value that is set meanwhile is doubled.
    if (event.isComposing) return;
    const { value, selectionEnd } = number;
    const isTypingOn = selectionEnd === value.length && !event.inputType?.startsWith("delete");
    if (isTypingOn) number.value = grouped(value);
    showBrand();
  };
  number.addEventListener("input", onTyped);
  number.addEventListener("compositionend", onTyped);

  const chips = document.querySelector(".chips");
  chips.hidden = false;
  chips.addEventListener("click", (event) => {
    const year = (Number(cardForm.dataset.thisMonth.slice(2, 4)) + 3) % 100;
    const filled = [[number, event.target.dataset.number], [expiry, `12 / ${year}`], [cvc, "123"]];
    if (event.target.title) {
      const chosen = document.getElementById("chosen");
      chosen.hidden = false;
      chosen.textContent = event.target.title;
    }
    for (const [field, text] of event.target.dataset.number ? filled : []) {
      field.value = text;
      for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind));
    }
  });

  // The browser may keep the page, to show it again when somebody goes back.
  window.addEventListener("pagehide", () => {
    number.value = cvc.value = "";
    showBrand();
  });
}
