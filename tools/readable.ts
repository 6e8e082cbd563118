/**
 * HTML as text for a model to read. Roughly: no parser, only tags told from text. It passes over the page once whatever the page holds,
 * because a page comes from anybody (CASES H09).
 */

/** The text of a page, with line breaks where its blocks begin and end. */
export function readable(html: string): string {
  const parts: string[] = [];
  let at = 0;
  while (at < html.length) {
    const open = html.indexOf("<", at);
    parts.push(html.slice(at, open < 0 ? undefined : open).replace(/\s+/g, " "));
    if (open < 0) break;
    const tag = html.slice(open, open + 24).match(/^<(?:\/?([a-z][a-z0-9]*)|[!?])/i);
    if (!tag) {
      parts.push("<");
      at = open + 1;
      continue;
    }
    const name = tag[1]?.toLowerCase() ?? "";
    const end = html.startsWith("<!--", open) ? after(html, /-->/g, open + 4) : after(html, />/g, open);
    const hides = hidden.has(name) && html[open + 1] !== "/";
    // In two steps: one pattern for the whole closing tag would read to the end again for each one that lacks its ">".
    at = hides ? after(html, />/g, after(html, new RegExp(`</${name}`, "gi"), end)) : end;
    if (name === "li" && html[open + 1] !== "/") parts.push("\n- ");
    else if (name === "td" || name === "th") parts.push(" ");
    else if (blocks.has(name)) parts.push("\n");
  }
  const lines = unescaped(parts.join("")).split("\n").map((line) => line.replace(/[ \u00a0]+/g, " ").trim());
  return lines.filter((line, i) => line !== "" || (i > 0 && lines[i - 1] !== "")).join("\n").trim();
}

const hidden = new Set("script style noscript template svg".split(" "));
const blocks = new Set(
  ("address article aside blockquote body br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 head " +
    "header hr li main nav ol option p pre section select table tr title ul").split(" "),
);

/** Where the next match ends; the end of the text if there is none. */
function after(html: string, pattern: RegExp, from: number): number {
  pattern.lastIndex = from;
  return pattern.exec(html) ? pattern.lastIndex : html.length;
}

const entities: { [name: string]: string } = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: " ",
  ndash: "–",
  mdash: "—",
  hellip: "…",
  lsquo: "‘",
  rsquo: "’",
  ldquo: "“",
  rdquo: "”",
  copy: "©",
  euro: "€",
};

function unescaped(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,6}));/gi, (entity, decimal, hex, name) => {
    if (name !== undefined) return Object.hasOwn(entities, name) ? entities[name]! : entity;
    const code = decimal !== undefined ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : entity;
  });
}
