// The menu in the corner of a chart, a table or a painted text: PNG, SVG and PDF with the title above and where it comes
// from below are made here; for its numbers, or to put it into the report, it asks the page.
// What is said reaches the picture as text nodes only.

const SPACE = "http://www.w3.org/2000/svg"
const EDGE = 16, TITLE = 40, LINE = 15
// Files that were saved: the page sends one again as often as it is drawn.
const saved = new Set()

export default function ({ parentElement, data: sent, setTriggerValue }) {
  const data = sent?.[0]
  const root = parentElement.querySelector(".menu")
  if (!root || !data) return
  const picture = () => {
    const plot = data.chart && document.querySelector(`.st-key-${CSS.escape(data.chart)} .js-plotly-plot`)
    return plot ? stamped(plot, data, getComputedStyle(root)) : ""
  }
  const does = {
    PNG: () => png(picture(), (blob) => save(blob, `${data.name}.png`)),
    SVG: () => save(new Blob([picture()], { type: "image/svg+xml" }), `${data.name}.svg`),
    PDF: () => print(picture(), data.name),
    CSV: () => setTriggerValue("csv", true),
    "Numbers as a table": () => setTriggerValue("table", true),
    "Add to report": () => setTriggerValue("keep", picture() || " "),
  }
  const button = root.querySelector("button"), list = root.querySelector("[popover]")
  button.setAttribute("aria-label", `Export: ${data.title}`)
  list.replaceChildren(...data.offers.map((name) => {
    const item = document.createElement("button")
    Object.assign(item, { type: "button", role: "menuitem", textContent: name })
    item.onclick = () => { list.hidePopover(); does[name]() }
    return item
  }))
  button.onclick = () => list.togglePopover()
  list.ontoggle = ({ newState }) => {
    button.setAttribute("aria-expanded", newState === "open")
    if (newState === "open") unfold(list, button.getBoundingClientRect())
  }
  list.onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], items = [...list.children]
    if (!step) return
    event.preventDefault()
    items.at((items.indexOf(list.getRootNode().activeElement) + step) % items.length).focus()
  }
  if (data.file && !saved.has(data.file.id)) {
    saved.add(data.file.id)
    save(new Blob([data.file.text], { type: "text/csv" }), `${data.name}.csv`)
  }
}

// Under its button, or above it where the window ends; the first entry has the keys.
function unfold(list, at) {
  const below = at.bottom + list.offsetHeight < window.innerHeight
  list.style.top = `${below ? at.bottom : at.top - list.offsetHeight}px`
  list.style.left = `${Math.max(4, at.right - list.offsetWidth)}px`
  list.firstChild.focus()
}

// The browser prints the picture on a sheet of its size: its dialog saves that as PDF, letters stay letters.
function print(svg, name) {
  const frame = document.createElement("iframe")
  frame.className = "fs-print"
  frame.style.cssText = "position: fixed; width: 0; height: 0; border: 0"
  document.body.append(frame)
  const sheet = frame.contentDocument
  sheet.title = name
  sheet.body.append(sheet.importNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, true))
  const { width, height } = sheet.body.firstChild.getBoundingClientRect()
  const style = sheet.createElement("style")
  style.textContent = `@page { size: ${width}px ${height}px; margin: 0 } body { margin: 0 } svg { display: block }`
  sheet.head.append(style)
  frame.contentWindow.onafterprint = () => frame.remove()
  frame.contentWindow.print()
}

// The layers of the plot one above the other, between the title and the footer.
function stamped(plot, data, look) {
  const ink = look.getPropertyValue("--st-text-color"), paper = look.getPropertyValue("--st-background-color")
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
