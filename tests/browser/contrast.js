// Text whose colour is too near its background (WCAG 2.2 AA: 4.5, large text 3), as the browser paints it, in words.
() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (colours) => {  // painted one over the other, the first one at the bottom
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((byte) => {
      const part = byte / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const backgrounds = (element) => {
    const found = [];
    for (let at = element; at; at = at.parentElement) found.unshift(getComputedStyle(at).backgroundColor);
    return found;
  };
  const hasText = (element) =>
    [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
  const wrong = new Set();
  for (const element of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(element);
    if (!hasText(element) || !element.checkVisibility() || element.matches("script, style, :disabled")) continue;
    if (style.clipPath === "inset(50%)") continue;  // for screen readers only
    const drawn = element instanceof SVGElement ? style.fill : style.color;
    const behind = backgrounds(element);
    const [text, ground] = [luminance(over([...behind, drawn])), luminance(over(behind))];
    const ratio = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) wrong.add(`${ratio.toFixed(2)}: ${element.outerHTML.slice(0, 100)}`);
  }
  return [...wrong];
}
