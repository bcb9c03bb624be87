// A painted text on any page: tokens answer the pointer with a tip.

const memory = new WeakMap()

export default function (component) {
  const { parentElement, setTriggerValue } = component
  const data = component.data?.[0]
  const root = parentElement.querySelector(".painted")
  if (!root || !data) return
  const own = memory.get(parentElement) ?? { spaces: false, now: null, id: null }
  memory.set(parentElement, own)
  own.data = data
  root.classList.toggle("bare", Boolean(data.bare))
  own.send = setTriggerValue
  // A drawing from before the last click was heard of moves nothing.
  if (data.locked !== own.before) own.before = undefined
  const moved = own.before === undefined && own.locked !== data.locked
  if (own.before === undefined) own.locked = data.locked
  const find = (name) => root.querySelector(name)
  const text = find(".text"), tip = find(".tip"), strip = find(".strip")
  own.opened = (n) => {
    data.open = n
    marks(root, own)
    arcs(strip, own, tip)
    scrollTo(text, data.arcs[n].query)
  }
  paintAll(root, own, tip)
  bar(root, own)
  if (moved && typeof data.locked === "number") scrollTo(text, data.locked)

  text.onscroll = () => seen(strip, text)
  own.crossed = unpacked(data.crossed)
  text.onpointerover = (e) => { const i = index(e.target); if (i !== null) { show(tip, own, i, e.target); cross(root, own, i) } }
  text.onpointerleave = () => { tip.hidden = true; cross(root, own, null) }
  text.onclick = (e) => { const i = index(e.target); if (i !== null && data.clickable) lock(own, i === home(text, own.locked) ? null : i, root) }
  text.onkeydown = (e) => keys(e, root, own, text, tip)
  text.onblur = () => { tip.hidden = true; cross(root, own, null) }
  return () => own.resize.disconnect()
}

function bar(root, own) {
  const button = root.querySelector(".bar .spaces")
  button.setAttribute("aria-pressed", own.spaces)
  button.onclick = () => {
    own.spaces = !own.spaces
    write(root, own)
    marks(root, own)
    bar(root, own)
  }
  root.querySelector(".hint").textContent = own.data.hint
}

function lock(own, i, root) {
  own.before = own.locked
  own.locked = i
  marks(root, own)
  own.send("token", i === null ? -1 : i)
}

function keys(e, root, own, text, tip) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key]
  if (step) {
    const now = stepped(own, text, step)
    show(tip, own, now, token(text, now))
    cross(root, own, now)
  } else if (e.key === "Enter" && own.now !== null && own.data.clickable) lock(own, own.now, root)
  else if (e.key === "Escape") { tip.hidden = true; cross(root, own, null); if (own.locked !== null && own.data.clickable) lock(own, null, root) }
  else return
  e.preventDefault()
}

// What every token of a window reads and who reads it: typed arrays from the page's base64.
function unpacked(sent) {
  if (!sent) return null
  const bytes = (name) => bytesOf(sent[name])
  const places = (name) => new (sent.wide ? Uint32Array : Uint16Array)(bytes(name).buffer)
  return { first: sent.first, each: sent.each, keys: places("keys"), readers: places("readers"), given: bytes("given"), received: bytes("received") }
}

// [token, share] of what token `i` reads, or of its readers, above 0.
function crossing(own, i, places, shares) {
  const { first, each } = own.crossed
  const from = (i - first) * each
  return from < 0 ? [] : [...own.crossed[places].subarray(from, from + each)].map((at, n) => [first + at, own.crossed[shares][from + n] / 255]).filter(([, share]) => share > 0)
}

// Marks what the hovered token reads and who reads it, in the text and on the strip; null clears.
function cross(root, own, i) {
  for (const node of own.marked ?? []) { node.classList.remove("key", "reader"); node.style.removeProperty("--share") }
  root.querySelectorAll(".strip .tick").forEach((tick) => tick.remove())
  own.marked = []
  if (i === null || !own.crossed) return
  const text = root.querySelector(".text"), strip = root.querySelector(".strip"), total = own.data.pieces.length
  for (const [name, shares, mark] of [["keys", "given", "key"], ["readers", "received", "reader"]]) {
    for (const [at, share] of crossing(own, i, name, shares)) {
      const span = token(text, at)
      if (!span) continue
      span.classList.add(mark)
      span.style.setProperty("--share", `${Math.round(20 + 60 * share)}%`)
      own.marked.push(span)
      const tick = element("i", `tick ${mark}`)
      tick.style.left = `${((at + 0.5) / total) * 100}%`
      strip.append(tick)
    }
  }
}

function show(tip, own, i, span) {
  const { data } = own
  const text = span.closest(".text"), whole = text.spelled.get(i)
  const of = (values) => whole ? values.slice(whole.first, whole.at + 1).map((v) => v ?? "–").join(" · ") : values[i]
  const word = element("b", "", visible(whole?.spelled ?? data.pieces[i], true).replace(/\n/g, "") || "∅")
  const list = element("dl", "")
  const rows = whole
    ? [["tokens", `${whole.first.toLocaleString()} to ${i.toLocaleString()}`], ["bytes", of(data.pieces)]]
    : [["token", i.toLocaleString()]]
  rows.push(...data.tips.map((t) => [t.label, of(t.values)]))
  for (const [label, name, shares] of own.crossed ? [["reads", "keys", "given"], ["read by", "readers", "received"]] : []) {
    const said = crossing(own, i, name, shares).slice(0, 3).map(([at, share]) => `${visible(data.pieces[at], true).replace(/\n/g, "")} ${percent(share)}`)
    rows.push([label, said.join(", ")])
  }
  for (const [label, value] of rows)
    if (value !== null && value !== "") list.append(element("dt", "", label), element("dd", "", value))
  tip.replaceChildren(word, list)
  place(tip, span.getClientRects()[0] ?? span.getBoundingClientRect())
}
