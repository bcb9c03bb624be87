// Saves the chart beside it as PNG or SVG with its title above and where it comes from below, or keeps it for the report.
// What is said reaches the picture as text nodes only.

const SPACE = "http://www.w3.org/2000/svg"
const EDGE = 16, TITLE = 40, LINE = 15

export default function ({ parentElement, data: sent, setTriggerValue }) {
  const data = sent?.[0]
  const root = parentElement.querySelector(".export")
  if (!root || !data) return
  const chart = () => data.chart && document.querySelector(`.st-key-${CSS.escape(data.chart)} .js-plotly-plot`)
  const look = getComputedStyle(root)
  const ink = look.getPropertyValue("--st-text-color"), paper = look.getPropertyValue("--st-background-color")
  const picture = () => { const plot = chart(); return plot ? stamped(plot, data, ink, paper) : "" }
  const does = {
    PNG: () => png(picture(), (blob) => save(blob, `${data.name}.png`)),
    SVG: () => save(new Blob([picture()], { type: "image/svg+xml" }), `${data.name}.svg`),
    Keep: () => setTriggerValue("keep", picture()),
  }
  root.replaceChildren(...data.offers.map((name) => {
    const button = document.createElement("button")
    button.type = "button"
    button.textContent = name
    button.title = { PNG: "The chart as a picture", SVG: "The chart as a vector graphic", Keep: "Put it into the report" }[name]
    button.onclick = does[name]
    return button
  }))
}

// The layers of the plot one above the other, between the title and the footer.
function stamped(plot, data, ink, paper) {
  const layers = [...plot.querySelectorAll("svg.main-svg")]
  const width = plot.clientWidth, height = plot.clientHeight, room = Math.floor((width - 2 * EDGE) / 5.6)
  const lines = data.footer.flatMap((line) => wrapped(line, room))
  const whole = node("svg", { xmlns: SPACE, width, height: TITLE + height + lines.length * LINE + EDGE })
  whole.setAttribute("viewBox", `0 0 ${width} ${whole.getAttribute("height")}`)
  whole.append(node("rect", { width: "100%", height: "100%", fill: paper }))
  const said = (words, y, size, weight) => {
    const text = node("text", { x: EDGE, y, fill: ink, "font-family": "sans-serif", "font-size": size, "font-weight": weight })
    text.textContent = words
    whole.append(text)
  }
  said(data.title, 26, 17, 600)
  const moved = node("g", { transform: `translate(0,${TITLE})` })
  for (const layer of layers) {
    const copy = layer.cloneNode(true)
    copy.removeAttribute("style")
    fitted(layer, copy)
    moved.append(copy)
  }
  whole.append(moved)
  lines.forEach((line, at) => said(line, TITLE + height + (at + 0.7) * LINE, 10.5, 400))
  return new XMLSerializer().serializeToString(whole)
}

// A picture has no web font: words keep the width they have on the page, and the legend is not cut.
function fitted(layer, copy) {
  const copies = copy.querySelectorAll("text, tspan")
  layer.querySelectorAll("text, tspan").forEach((word, at) => {
    if (word.querySelector("tspan") || !word.textContent.trim()) return
    copies[at].setAttribute("textLength", word.getComputedTextLength())
    copies[at].setAttribute("lengthAdjust", "spacingAndGlyphs")
  })
  for (const cut of copy.querySelectorAll(".legend [clip-path]")) cut.removeAttribute("clip-path")
}

function node(name, attributes) {
  const made = document.createElementNS(SPACE, name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  return made
}

function wrapped(words, room) {
  const lines = [""], parts = new RegExp(`.{1,${Math.max(room, 1)}}`, "gu") // an address is one word, and long
  for (const word of words.split(" ").flatMap((each) => each.match(parts) ?? [""])) {
    if ((lines.at(-1) + word).length > room && lines.at(-1)) lines.push("")
    lines[lines.length - 1] += `${word} `
  }
  return lines
}

function png(svg, done) {
  const image = new Image()
  image.onload = () => {
    const canvas = document.createElement("canvas")
    canvas.width = 2 * image.width
    canvas.height = 2 * image.height
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height)
    canvas.toBlob(done, "image/png")
  }
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`
}

function save(blob, name) {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10000)
}
