// Is it worth it?: context, batch and keep as sliders, the answer in large numbers, and the gain by context. Three
// places of a page (`data.role`) that move together while the hand moves; only the released values reach Python.
const memory = new WeakMap()
const MOVED = "focuscope-worth"
// Gains below are in per cent.
const LITTLE = 1.5
const HIGH = 300, LEFT = 40, RIGHT = 92, TOP = 16, LOW = 40

export default function ({ parentElement, data: sent, setTriggerValue }) {
  const data = sent?.[0], root = parentElement.querySelector(".worth")
  if (!root || !data) return
  const own = memory.get(parentElement) ?? {}
  memory.set(parentElement, own)
  Object.assign(own, { data, root, now: data.now, send: (now) => setTriggerValue("released", JSON.stringify(now)) })
  root.className = `worth ${data.role}`
  const draw = () => DRAW[data.role](own)
  const follow = ({ detail }) => { own.now = detail; draw() }
  document.addEventListener(MOVED, follow)
  own.watch?.disconnect()
  if (data.role === "picture") {
    own.watch = new ResizeObserver(draw)
    own.watch.observe(root)
  }
  draw()
  return () => { document.removeEventListener(MOVED, follow); own.watch?.disconnect() }
}

const DRAW = { inputs, numbers, picture }
const move = (own, change) =>
  document.dispatchEvent(new CustomEvent(MOVED, { detail: { ...own.now, ...change } }))

function element(name, attributes = {}, ...inside) {
  const svg = ["svg", "g", "path", "line", "rect", "text", "circle", "title"].includes(name)
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value)
  node.append(...inside)
  return node
}

// --- the sliders -----------------------------------------------------------------------------------------------------

function inputs(own) {
  const { data, now, root } = own
  if (own.drawn !== data.id) {
    own.drawn = data.id
    root.replaceChildren(...data.sliders.map((slider) => {
      const range = element("input", { type: "range", min: 0, max: slider.options.length - 1, step: 1, "data-name": slider.name })
      range.setAttribute("aria-label", slider.label)
      range.oninput = () => move(own, { [slider.name]: slider.options[range.value] })
      range.onchange = () => own.send(own.now)
      return element("label", { title: slider.help }, element("span", {}, slider.label), element("b"), range)
    }))
  }
  data.sliders.forEach((slider, at) => {
    const label = root.children[at], range = label.querySelector("input"), value = now[slider.name]
    range.value = slider.options.indexOf(value)
    label.querySelector("b").textContent = spelled(slider.name, value)
    range.setAttribute("aria-valuetext", spelled(slider.name, value))
  })
}

const spelled = (name, value) =>
  name === "keep" ? percent(value) : name === "context" ? whole(value) : String(value)

// --- the answer ------------------------------------------------------------------------------------------------------

function numbers(own) {
  const { data, now, root } = own, { made, gpu } = data
  const [dense, cut] = [1, now.keep].map((keep) => estimate(made, gpu, now.context, now.batch, keep))
  const many = now.batch === 1 ? "1 sequence" : `${now.batch} sequences`
  const fits = dense.fits ? `if cut keys leave the cache` : cut.fits ? "dense does not fit" : "does not fit"
  const cards = [
    ["Time to first token", seconds(dense.first), seconds(cut.first), atMostFaster(dense.first / cut.first)],
    ["Each later token", seconds(dense.token), seconds(cut.token), atMostFaster(dense.token / cut.token)],
    ["Largest batch", whole(dense.largest), whole(cut.largest), cut.largest ? `${whole(dense.rate)} → ${whole(cut.rate)} tokens/s at best`
      : `the weights take ${bytes(made.model_bytes)}`],
    [`KV cache, ${many}`, bytes(dense.cache), bytes(cut.cache), fits],
  ]
  const said = verdict(made, data.longest, now.context, now.batch, now.keep)
  const beyond = data.longest && now.context > data.longest ? ` Made for ${whole(data.longest)} tokens.` : ""
  root.replaceChildren(
    element("h1", { title: data.hint }, said),
    element("p", { class: "scope" }, data.scope + beyond),
    element("div", { class: "cards" }, ...cards.map(([label, before, after, below]) => element("div", { class: "card" },
      element("span", { class: "label" }, label),
      element("span", { class: "values" }, element("i", {}, before), " → ", element("b", {}, after)),
      element("span", { class: "below" }, below)))))
}

// A little is said in per cent: nobody shall read a third more as a multiple.
const atMostFaster = (times) => times < LITTLE ? `${Math.round(100 * (times - 1))}% faster at most` : `${times.toFixed(1)}x at most`

// Three digits, as a person says them.
const three = (value) => value >= 100 ? whole(value) : String(Number(value.toPrecision(3)))
const seconds = (value) => value >= 1 ? `${three(value)} s` : value >= 1e-3 ? `${three(1e3 * value)} ms` : `${three(1e6 * value)} µs`

function bytes(count) {
  for (const [unit, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (count >= unit) return `${three(count / unit)} ${name}`
  return `${whole(count)} bytes`
}

// --- the picture -----------------------------------------------------------------------------------------------------

function picture(own) {
  const { data, now, root } = own, wide = root.clientWidth, contexts = data.contexts
  if (!wide) return
  const points = contexts.map((context) => ({ context, ...gains(data.made.gain, context, now.batch, now.keep) }))
  const most = Math.max(2, ...points.map((point) => point.most))
  const [first, last] = [contexts[0], contexts.at(-1)].map(Math.log2)
  const x = (context) => LEFT + ((Math.log2(context) - first) / (last - first)) * (wide - LEFT - RIGHT)
  const y = (gain) => HIGH - LOW - (Math.log(gain) / Math.log(most)) * (HIGH - LOW - TOP)
  const svg = element("svg", { width: wide, height: HIGH, "aria-hidden": true })
  for (const [name, value] of [["tabindex", 0], ["role", "slider"], ["aria-label", data.label], ["aria-valuenow", now.context]])
    root.setAttribute(name, value)
  const at = gains(data.made.gain, now.context, now.batch, now.keep)
  root.setAttribute("aria-valuetext", `${whole(now.context)} tokens: first token ${at.prefill.toFixed(2)} times, each later token ${at.token.toFixed(2)} times faster at most`)
  if (data.longest && data.longest < contexts.at(-1)) {
    const from = Math.max(x(data.longest), LEFT)
    svg.append(element("rect", { class: "beyond", x: from, y: TOP, width: wide - RIGHT - from, height: HIGH - LOW - TOP }))
    // where the curves are not
    const flat = points.at(-1).most < Math.sqrt(most)
    svg.append(element("text", { class: "tick", x: from + 6, y: flat ? TOP + 16 : HIGH - LOW - 8 }, "beyond its context"))
  }
  for (const gain of [1, 1.5, 2, 3, 5, 10, 20, 50, 100].filter((level) => level <= most)) {
    svg.append(element("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: y(gain), y2: y(gain) }))
    svg.append(element("text", { class: "tick", x: LEFT - 8, y: y(gain) + 4, "text-anchor": "end" }, `${gain}x`))
  }
  contexts.forEach((context, n) => n % 2 || svg.append(
    element("text", { class: "tick", x: x(context), y: HIGH - LOW + 18, "text-anchor": "middle" }, short(context))))
  svg.append(element("text", { class: "tick", x: (LEFT + wide - RIGHT) / 2, y: HIGH - 4, "text-anchor": "middle" }, "context, tokens"))
  svg.append(element("line", { class: "now", x1: x(now.context), x2: x(now.context), y1: TOP, y2: HIGH - LOW }))
  const ends = [y(points.at(-1).prefill), y(points.at(-1).token)]
  // Names that would cover each other move apart.
  if (Math.abs(ends[0] - ends[1]) < 16) ends[ends[0] <= ends[1] ? 0 : 1] -= 16
  const down = Math.max(0, 8 - Math.min(...ends)) // the upper one stays inside
  for (const [at, kind, name] of [[0, "prefill", "first token"], [1, "token", "later tokens"]]) {
    const path = points.map((point, n) => `${n ? "L" : "M"}${x(point.context)},${y(point[kind])}`).join("")
    svg.append(element("path", { class: kind, d: path }))
    for (const point of points) {
      const about = `${whole(point.context)} tokens, ${name}: ${point[kind].toFixed(2)} times faster at most`
      const mark = { class: kind, cx: x(point.context), cy: y(point[kind]), r: point.context === now.context ? 6 : 3.5 }
      svg.append(element("circle", mark, element("title", {}, about)))
    }
    svg.append(element("text", { class: kind, x: wide - RIGHT + 10, y: ends[at] + down + 4 }, name))
  }
  const nearest = (event) => {
    const place = event.clientX - svg.getBoundingClientRect().left
    return contexts.reduce((best, context) => Math.abs(x(context) - place) < Math.abs(x(best) - place) ? context : best)
  }
  const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }
  root.replaceChildren(svg)
  root.onpointerdown = (event) => { root.setPointerCapture(event.pointerId); move(own, { context: nearest(event) }) }
  root.onpointermove = (event) => root.hasPointerCapture(event.pointerId) && move(own, { context: nearest(event) })
  root.onpointerup = () => own.send(own.now)
  root.onkeydown = (event) => {
    const context = contexts[contexts.indexOf(own.now.context) + step[event.key]]
    if (context === undefined) return
    event.preventDefault()
    move(own, { context })
    own.send(own.now)
  }
}
