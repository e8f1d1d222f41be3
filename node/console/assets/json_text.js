// JSON with line breaks, and nothing else changed: numbers keep their digits, names that come twice
// stay, strings keep their escapes. JSON.parse only says whether it is JSON.

const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;
const DEEPEST = 100;

// Throws for what is not JSON, and for what is nested too deeply to be shown by lines.
export function jsonLines(text) {
  JSON.parse(text);
  const pieces = [];
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  const tokens = text.match(TOKEN);
  tokens.forEach((token, index) => {
    const next = tokens[index + 1];
    if (token === "{" || token === "[") {
      if (++depth > DEEPEST) throw new Error(`it is nested more than ${DEEPEST} deep: see it as text`);
      pieces.push(token, next === "}" || next === "]" ? "" : line());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const before = tokens[index - 1];
      pieces.push(before === "{" || before === "[" ? "" : line(), token);
    } else if (token === ",") pieces.push(",", line());
    else pieces.push(token === ":" ? ": " : token);
  });
  return pieces.join("");
}
