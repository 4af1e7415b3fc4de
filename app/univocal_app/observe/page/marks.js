// Which octets of two spellings differ: the rest is their longest common subsequence.
"use strict";

const MOST_OCTETS = 600; // of each, for the table of all pairs; of longer ones the middle is marked

// An escape is one octet, written with three characters.
const octetsOf = (text) => text.match(/%[0-9A-Fa-f]{2}|[^]/gu) ?? [];

// The parts of both texts, in order, as [text, is it in the other one, too].
export function compared(one, other) {
  const a = octetsOf(one);
  const b = octetsOf(other);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const common = inCommon(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [a, b].map((octets, side) => {
    const inside = new Set(common.map((pair) => pair[side] + start));
    return parts(octets, (index) => index < start || index >= octets.length - end || inside.has(index));
  });
}

function inCommon(a, b) {
  if (a.length > MOST_OCTETS || b.length > MOST_OCTETS) return [];
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (longest[i + 1][j] >= longest[i][j + 1]) i += 1;
    else j += 1;
  }
  return pairs;
}

function parts(octets, isCommon) {
  const found = [];
  octets.forEach((octet, index) => {
    const common = isCommon(index);
    if (found.length && found.at(-1)[1] === common) found.at(-1)[0] += octet;
    else found.push([octet, common]);
  });
  return found;
}
