// Measures every text that can be read now, and every text in a closed part of the page, against what is painted behind it.
const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const parsed = (color) => {
  pixel.canvas.width = pixel.canvas.height = 1;
  pixel.fillStyle = color;
  pixel.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data;
  return { rgb: [red, green, blue], alpha: alpha / 255 };
};
const over = (top, rgb) => top.rgb.map((value, index) => value * top.alpha + rgb[index] * (1 - top.alpha));
const behind = (element) => {
  if (!element) return [255, 255, 255];
  const own = parsed(getComputedStyle(element).backgroundColor);
  return own.alpha === 1 ? own.rgb : over(own, behind(element.parentElement));
};
const light = (rgb) => {
  const [red, green, blue] = rgb.map((value) => value / 255).map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const contrast = (one, other) => {
  const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
};
const closed = [...document.querySelectorAll("details:not([open])")];
closed.forEach((details) => { details.open = true; });
const faint = [];
let texts = 0;
const measure = (element, style, text) => {
  // What cannot be used is exempt.
  if (!text || element.closest(":disabled") || !element.checkVisibility({ checkVisibilityCSS: true })) return;
  let opacity = 1;
  for (let one = element; one; one = one.parentElement) opacity *= Number(getComputedStyle(one).opacity);
  const background = behind(element), color = parsed(style.color);
  const shown = over({ rgb: color.rgb, alpha: color.alpha * opacity }, background);
  const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const ratio = contrast(shown, background);
  texts += 1;
  if (ratio < (isLarge ? 3 : 4.5)) faint.push(`${ratio.toFixed(2)}: ${style.color} on ${background}: ${text.slice(0, 40)}`);
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  measure(element, getComputedStyle(element), walker.currentNode.textContent.trim());
}
for (const input of document.querySelectorAll("input:not([type=checkbox]), textarea, select")) {
  const text = input.value || input.placeholder;
  measure(input, getComputedStyle(input, input.value ? null : "::placeholder"), text);
}
closed.forEach((details) => { details.open = false; });
return { texts, faint, scheme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light" };
