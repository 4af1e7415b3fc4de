// Keys as one reads them: letters that are safe to read are decoded. The exact form is copied, and shown on hover.
"use strict";

const LETTERS = /^[\p{L}\p{N}][\p{L}\p{N}\p{M}]*$/u;
// What nobody sees, or reorders others.
const UNSAFE = /\p{Default_Ignorable_Code_Point}|[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const LATIN = /\p{Script=Latin}/u;
const LIKE_LATIN = /[\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}\p{Script=Cherokee}]/u;

function decoded(octets) {
  try {
    const text = decodeURIComponent(octets);
    return LETTERS.test(text) && !UNSAFE.test(text) && text.normalize("NFC") === text ? text : octets;
  } catch {
    return octets;
  }
}

// A URL with its letters beyond ASCII. A word of letters that look alike in two scripts leaves all of it encoded.
export function readable(url) {
  if (/[^!-~]/.test(url)) return url;
  const text = url.replace(/(?:%[89A-F][0-9A-F])+/g, decoded);
  const words = text.match(/[\p{L}\p{N}\p{M}]+/gu) ?? [];
  return words.some((word) => LATIN.test(word) && LIKE_LATIN.test(word)) ? url : text;
}

// The URL of which `readable` made a text, or of a part of it.
const exact = (text) => text.replace(/[^\x00-\x7f]+/gu, encodeURIComponent);

document.addEventListener("copy", (event) => {
  const selection = getSelection();
  const shown = [...document.querySelectorAll(".decoded")].filter((each) => selection.containsNode(each, true));
  if (!shown.length) return;
  const text = selection.toString();
  const isPart = shown.length === 1 && shown[0].textContent.includes(text);
  event.clipboardData.setData("text/plain", isPart ? exact(text) : shown.reduce(
    (whole, each) => whole.replaceAll(each.textContent, exact(each.textContent)), text,
  ));
  event.preventDefault();
});
