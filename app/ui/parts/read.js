// The first screen of Read: the text with arcs and strip, the card beside it, the slider under it.
// Where the pointer is, the card is; without a pointer it holds the token that was clicked, or the open link.

const memory = new WeakMap()
const RESTS = 500 // milliseconds after which a link that was stepped to goes into the address

export default function (component) {
  const { parentElement, setTriggerValue } = component
  const data = component.data?.[0]
  const root = parentElement.querySelector(".painted")
  if (!root || !data) return
  const own = memory.get(parentElement) ?? { spaces: false, now: null, id: null, touched: null }
  memory.set(parentElement, own)
  const find = (name) => root.querySelector(name)
  const text = find(".text"), tip = find(".tip"), strip = find(".strip")
  const moved = own.locked !== data.locked, another = own.id !== data.id, elsewhere = own.place !== data.place
  if (own.answered !== data.answered) Object.assign(own, { answered: data.answered, open: data.open, tab: own.tab && data.tabs[own.tab] ? own.tab : data.tab })
  data.open = own.open
  Object.assign(own, { data, text, send: setTriggerValue, locked: data.locked })
  own.links = linked(data.links)
  own.steps = steps(data.keep)
  own.map = mapped(data.map)
  if (another) own.spans = null
  own.called = (i) => wordOf(own, i)
  own.seat = (i) => i - Math.max(0, ...data.breaks.filter((edge) => edge <= i))
  own.goto = (i) => { scrollTo(text, i); lock(root, own, i) }
  own.went = (i) => touch(root, own, i)
  own.isolated = () => points(root, own, null)
  root.classList.toggle("grouped", data.isolates)
  own.opened = (n, still) => {
    data.open = own.open = n
    Object.assign(own, { touched: null, now: null })
    marks(root, own)
    arcs(strip, own, tip)
    if (data.arcs[n]) scrollTo(text, data.arcs[n].query)
    told(root, own)
    if (still) return
    clearTimeout(own.resting)
    own.resting = setTimeout(() => setTriggerValue("arc", n), RESTS)
  }
  own.step = (step) => own.opened(((data.open ?? 0) + step + data.arcs.length) % data.arcs.length)

  paintAll(root, own, tip)
  spaces(root, own)
  tabs(root, own)
  keep(root, own)
  told(root, own)
  if (moved && typeof data.locked === "number") scrollTo(text, data.locked)
  else if (elsewhere && data.arcs[data.open]) scrollTo(text, data.arcs[data.open].query)
  if (elsewhere && !own.played && typeof data.locked !== "number") play(strip, own)

  text.onscroll = () => { seen(strip, text); if (own.spans) fade(own, text) }
  text.onpointerover = (e) => { const i = index(e.target); if (i !== null) touch(root, own, i) }
  text.onpointerleave = () => touch(root, own, null)
  text.onclick = (e) => { const i = index(e.target); if (i !== null) lock(root, own, i === home(text, own.locked) ? null : i) }
  text.onkeydown = (e) => keys(e, root, own)
  text.onpaste = (e) => { const words = e.clipboardData.getData("text"); if (words.trim()) setTriggerValue("pasted", words) }
  bring(root)
  return () => own.resize.disconnect()
}

// The card and the marks of what is in use now.
function told(root, own) {
  const i = own.touched ?? own.locked ?? null
  cross(root, own, i)
  if (own.tab === "links") list(root, own)
  else if (own.tab === "map") points(root, own, i)
  else card(root, own, i)
}

function touch(root, own, i) {
  if (own.touched === i) return
  own.touched = i
  told(root, own)
}

function lock(root, own, i) {
  own.locked = own.data.locked = i
  own.touched = null
  marks(root, own)
  if (own.tab === "links") { own.tab = "card"; tabs(root, own) }
  told(root, own)
  own.send("token", i === null ? -1 : i)
}

// Marks what a token reads and who reads it, in the text and as arcs over the strip; null clears.
function cross(root, own, i) {
  for (const node of own.marked ?? []) { node.classList.remove("key", "reader", "now"); node.style.removeProperty("--share") }
  root.querySelectorAll(".strip .now").forEach((line) => line.remove())
  own.marked = []
  const strip = root.querySelector(".strip"), svg = strip.querySelector("svg")
  strip.classList.toggle("touched", i !== null)
  if (i === null || !own.links) return
  const mark = (at, name) => {
    const span = token(own.text, at)
    if (!span) return null
    span.classList.add(name)
    own.marked.push(span)
    return span
  }
  mark(i, "now")
  for (const [readers, name] of [[false, "key"], [true, "reader"]]) {
    for (const { at, share } of linksOf(own, i, readers)) {
      const { d } = bow(strip, own, Math.min(i, at), Math.max(i, at))
      path(svg, d, `now ${name}`).style.opacity = 0.3 + 0.7 * share
      const [first, stop] = wordAt(own, at)
      for (let j = first; j < stop; j++) mark(j, name)?.style.setProperty("--share", `${Math.round(20 + 60 * share)}%`)
    }
  }
}

function spaces(root, own) {
  const button = root.querySelector(".bar .spaces")
  button.setAttribute("aria-pressed", own.spaces)
  button.onclick = () => {
    own.spaces = !own.spaces
    own.spans = null
    write(root, own)
    marks(root, own)
    spaces(root, own)
    if (own.kept) fade(own, own.text)
  }
}

function tabs(root, own) {
  const names = Object.entries(own.data.tabs)
  root.querySelector(".card .tabs").replaceChildren(...names.map(([name, title]) => {
    const button = element("button", "", title)
    button.type = "button"
    button.setAttribute("role", "tab")
    button.setAttribute("aria-selected", own.tab === name)
    button.onclick = () => { own.tab = name; tabs(root, own); told(root, own) }
    return button
  }))
  root.querySelector(".card .tabs").hidden = names.length < 2
  if (own.tab === "map") map(root, own)
}

// Left and right go over tokens, up and down over links; Enter keeps a token, Escape lets go.
function keys(e, root, own) {
  const across = { ArrowRight: 1, ArrowLeft: -1 }[e.key], along = { ArrowDown: 1, ArrowUp: -1 }[e.key]
  if (across) touch(root, own, stepped(own, own.text, across))
  else if (along && own.data.arcs.length) own.step(along)
  else if (e.key === "Enter" && own.now !== null) lock(root, own, own.now)
  else if (e.key === "Escape") { own.now = null; touch(root, own, null); if (typeof own.locked === "number") lock(root, own, null) }
  else return
  e.preventDefault()
}

// The open link is drawn once, from the old place to the new one.
function play(strip, own) {
  own.played = true
  const line = strip.querySelector("path.open")
  if (!line || matchMedia("(prefers-reduced-motion: reduce)").matches) return
  const long = line.getTotalLength()
  line.animate([{ strokeDasharray: long, strokeDashoffset: long }, { strokeDasharray: long, strokeDashoffset: 0 }], { duration: 1200, easing: "ease-in-out" })
}

// A file that is dropped anywhere on the screen goes to the field under it, which takes it as if it had been chosen there.
function bring(root) {
  root.ondragover = (e) => { e.preventDefault(); root.classList.add("drop") }
  root.ondragleave = () => root.classList.remove("drop")
  root.ondrop = (e) => {
    e.preventDefault()
    root.classList.remove("drop")
    const field = document.querySelector(".st-key-bring input[type=file]")
    if (!field || !e.dataTransfer.files.length) return
    field.files = e.dataTransfer.files
    field.dispatchEvent(new Event("change", { bubbles: true }))
  }
}
