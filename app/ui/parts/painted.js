// Painted text: one span per token, an overview strip with arcs for pairs, a legend that isolates one class.
// A character that several tokens spell is written once, at the token that completes it; its bytes stand in the tip.
// Everything a reader supplied goes through textContent or a text node, never through markup.

const memory = new WeakMap()

export default function (component) {
  const { parentElement, setTriggerValue } = component
  const data = component.data?.[0]
  const root = parentElement.querySelector(".painted")
  if (!root || !data) return
  const own = memory.get(parentElement) ?? { spaces: false, numbers: false, now: null, id: null }
  memory.set(parentElement, own)
  own.data = data
  root.classList.toggle("bare", Boolean(data.bare))
  own.send = setTriggerValue
  const moved = own.locked !== data.locked
  own.locked = data.locked
  const find = (name) => root.querySelector(name)
  const text = find(".text"), tip = find(".tip"), strip = find(".strip")
  const dark = luminance(getComputedStyle(root).getPropertyValue("--st-background-color")) < 0.4
  if (own.id !== data.id || !text.firstChild) {
    const stay = own.place === data.place ? text.scrollTop : 0
    Object.assign(own, { id: data.id, place: data.place, now: null })
    write(root, own)
    text.scrollTop = stay
  }
  ink(root, data, dark)
  legend(root, own)
  marks(root, own)
  bar(root, own)
  arcs(strip, own, tip)
  draw(strip, own, text)
  if (moved && typeof data.locked === "number") scrollTo(text, data.locked)

  text.onscroll = () => seen(strip, text)
  own.crossed = unpacked(data.crossed)
  text.onpointerover = (e) => { const i = index(e.target); if (i !== null) { show(tip, own, i, e.target); cross(root, own, i) } }
  text.onpointerleave = () => { tip.hidden = true; cross(root, own, null) }
  text.onclick = (e) => { const i = index(e.target); if (i !== null && data.clickable) lock(own, i === home(text, own.locked) ? null : i, root) }
  text.onkeydown = (e) => keys(e, root, own, text, tip)
  text.onblur = () => { tip.hidden = true; cross(root, own, null) }
  find("canvas").onclick = (e) => {
    const box = e.target.getBoundingClientRect()
    scrollTo(text, Math.floor(((e.clientX - box.left) / box.width) * data.pieces.length))
  }
  own.resize?.disconnect()
  own.resize = new ResizeObserver(() => { arcs(strip, own, tip); draw(strip, own, text) })
  own.resize.observe(strip)
  return () => own.resize.disconnect()
}

const home = (text, i) => text.spelled.get(i)?.at ?? i // where a token is written

const index = (node) => {
  const span = node.closest?.("[data-i]")
  return span ? Number(span.dataset.i) : null
}

function visible(piece, spaces) {
  return spaces ? piece.replace(/ /g, "·").replace(/\t/g, "⇥\t").replace(/\n/g, "↵\n") : piece
}

function write(root, own) {
  const { data } = own
  const text = root.querySelector(".text")
  const block = document.createElement("div")
  const breaks = new Map(data.breaks.map((at, n) => [at, n + 2]))
  const faint = new Set(data.faint)
  text.spelled = new Map()
  text.spans = new Map()
  for (const [first, stop, spelled] of data.characters) {
    const paints = data.paint.slice(first, stop)
    const paint = data.numbered ? paints.at(-1) : Math.max(...paints) // a group, or the strongest
    const one = { first, at: stop - 1, spelled, paint }
    for (let i = first; i < stop; i++) text.spelled.set(i, one)
  }
  data.pieces.forEach((part, i) => {
    const whole = text.spelled.get(i)
    const piece = whole?.spelled ?? part
    if (breaks.has(i)) {
      const line = document.createElement("span")
      line.className = "break"
      line.textContent = `window ${breaks.get(i)}: nothing before this line is read from here on`
      block.append(line)
    }
    if (whole && i < whole.at) return
    const lead = own.spaces || !piece.trim() ? "" : piece.match(/^\s*/)[0]
    if (lead) block.append(lead)
    const span = document.createElement("span")
    span.dataset.i = i
    const paint = whole?.paint ?? data.paint[i]
    span.className = "t" + (paint >= 0 ? ` p c${paint} ${data.palette[paint].line ?? ""}` : "") + (faint.has(i) ? " faint" : "")
    span.textContent = visible(piece.slice(lead.length), own.spaces)
    if (data.numbered && paint >= 0 && piece.trim()) span.dataset.tag = data.palette[paint].tag
    text.spans.set(i, span)
    block.append(span)
  })
  text.replaceChildren(block)
  text.classList.toggle("code", data.code)
  text.classList.toggle("live", data.clickable)
}

function ink(root, data, dark) {
  const rules = data.palette.map((p, n) => `.c${n} { --ink: ${dark ? p.dark : p.light}; --mix: ${dark ? p.mix_dark : p.mix}%; }`)
  root.querySelector("style.ink").textContent = rules.join("\n")
}

function legend(root, own) {
  const { data } = own
  const box = root.querySelector(".legend")
  box.replaceChildren()
  if (data.legend_title) {
    const head = document.createElement("div")
    head.className = "head"
    head.textContent = data.legend_title
    box.append(head)
  }
  data.palette.forEach((p, n) => {
    const item = document.createElement(data.isolates ? "button" : "div")
    item.className = "item"
    const swatch = document.createElement("span")
    swatch.className = `swatch t p c${n} ${p.line ?? ""}`
    swatch.textContent = p.tag
    const name = document.createElement("span")
    name.className = "name"
    name.textContent = p.name
    const note = document.createElement("span")
    note.className = "note"
    note.textContent = p.note ?? ""
    item.append(swatch, name, note)
    if (data.isolates) {
      item.setAttribute("aria-pressed", data.isolate === n)
      item.onclick = () => isolate(root, own, data.isolate === n ? null : n)
    }
    box.append(item)
  })
  for (const [mark, name] of data.crossed ? [["key", "read by the token under the pointer"], ["reader", "reads it later"]] : []) {
    const item = document.createElement("div"), swatch = document.createElement("span"), said = document.createElement("span")
    item.className = "item"
    swatch.className = `swatch t ${mark}`
    swatch.textContent = "Aa"
    said.className = "name"
    said.textContent = name
    item.append(swatch, said)
    box.append(item)
  }
}

// Shown at once; the page follows with its charts and tables.
function isolate(root, own, n) {
  own.data.isolate = n
  legend(root, own)
  marks(root, own)
  draw(root.querySelector(".strip"), own, root.querySelector(".text"))
  own.send("class", n ?? -1)
}

function marks(root, own) {
  const { data } = own
  const text = root.querySelector(".text")
  text.querySelectorAll(".chosen, .mark, .lock").forEach((s) => s.classList.remove("chosen", "mark", "lock"))
  const one = data.isolate !== null && data.isolate !== undefined
  text.classList.toggle("one", one)
  if (one) text.querySelectorAll(`.c${data.isolate}`).forEach((s) => s.classList.add("chosen"))
  const open = data.arcs[data.open]
  for (const i of open?.mark ?? []) token(text, i)?.classList.add("mark")
  if (own.locked !== null && own.locked !== undefined) token(text, own.locked)?.classList.add("lock")
}

const token = (text, i) => text.spans.get(home(text, i))

function bar(root, own) {
  for (const name of ["spaces", "numbers"]) {
    const button = root.querySelector(`.bar .${name}`)
    button.hidden = name === "numbers" && !own.data.numbered
    button.setAttribute("aria-pressed", own[name])
    button.onclick = () => {
      own[name] = !own[name]
      if (name === "spaces") write(root, own)
      root.querySelector(".text").classList.toggle("numbers", own.numbers)
      marks(root, own)
      bar(root, own)
    }
  }
  root.querySelector(".hint").textContent = own.data.hint
}

function lock(own, i, root) {
  own.locked = i
  marks(root, own)
  own.send("token", i === null ? -1 : i)
}

function keys(e, root, own, text, tip) {
  const last = own.data.pieces.length - 1
  const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key]
  if (step) {
    const from = own.now ?? own.locked ?? -step
    let to = from + step
    while (to > 0 && to < last && home(text, to) === home(text, from)) to += step
    own.now = home(text, Math.min(last, Math.max(0, to)))
    const span = token(text, own.now)
    span.scrollIntoView({ block: "nearest" })
    show(tip, own, own.now, span)
    cross(root, own, own.now)
  } else if (e.key === "Enter" && own.now !== null && own.data.clickable) lock(own, own.now, root)
  else if (e.key === "Escape") { tip.hidden = true; cross(root, own, null); if (own.locked !== null && own.data.clickable) lock(own, null, root) }
  else return
  e.preventDefault()
}

// What every token of a window reads and who reads it: typed arrays from the page's base64.
function unpacked(sent) {
  if (!sent) return null
  const bytes = (name) => Uint8Array.from(atob(sent[name]), (c) => c.charCodeAt(0))
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
      const tick = document.createElement("i")
      tick.className = `tick ${mark}`
      tick.style.left = `${((at + 0.5) / total) * 100}%`
      strip.append(tick)
    }
  }
}

function show(tip, own, i, span) {
  const { data } = own
  const text = span.closest(".text"), whole = text.spelled.get(i)
  const of = (values) => whole ? values.slice(whole.first, whole.at + 1).map((v) => v ?? "–").join(" · ") : values[i]
  tip.replaceChildren()
  const word = document.createElement("b")
  word.textContent = visible(whole?.spelled ?? data.pieces[i], true).replace(/\n/g, "") || "∅"
  const list = document.createElement("dl")
  const rows = whole
    ? [["tokens", `${whole.first.toLocaleString()} to ${i.toLocaleString()}`], ["bytes", of(data.pieces)]]
    : [["token", i.toLocaleString()]]
  rows.push(...data.tips.map((t) => [t.label, of(t.values)]))
  for (const [label, name, shares] of own.crossed ? [["reads", "keys", "given"], ["read by", "readers", "received"]] : []) {
    const said = crossing(own, i, name, shares).slice(0, 3).map(([at, share]) => `${visible(data.pieces[at], true).replace(/\n/g, "")} ${Math.round(100 * share)}%`)
    rows.push([label, said.join(", ")])
  }
  for (const [label, value] of rows) {
    if (value === null || value === "") continue
    const dt = document.createElement("dt"), dd = document.createElement("dd")
    dt.textContent = label
    dd.textContent = value
    list.append(dt, dd)
  }
  tip.append(word, list)
  place(tip, span.getClientRects()[0] ?? span.getBoundingClientRect())
}

function place(tip, at) {
  tip.hidden = false
  const { width, height } = tip.getBoundingClientRect()
  tip.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, at.left))}px`
  tip.style.top = `${at.bottom + height + 12 > innerHeight ? at.top - height - 8 : at.bottom + 8}px`
}

function arcs(strip, own, tip) {
  const { data } = own
  const svg = strip.querySelector("svg")
  strip.classList.toggle("bare", data.arcs.length === 0)
  const width = strip.clientWidth, total = data.pieces.length
  svg.replaceChildren()
  const path = (d, name) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", "path")
    node.setAttribute("d", d)
    node.setAttribute("class", name)
    svg.append(node)
    return node
  }
  const order = data.arcs.map((_, n) => n).sort((a, b) => (a === data.open) - (b === data.open))
  for (const n of order) {
    const arc = data.arcs[n]
    const from = ((arc.key + 0.5) / total) * width, to = ((arc.query + 0.5) / total) * width
    const top = 54 - 50 * Math.sqrt(Math.abs(to - from) / Math.max(1, width)) * 1.9
    const d = `M${from} 55 C${from} ${top} ${to} ${top} ${to} 55`
    const line = path(d, n === data.open ? "open" : "")
    const grip = path(d, "grip")
    grip.onpointerenter = () => {
      line.classList.add("hover")
      tip.textContent = arc.label
      place(tip, { left: (from + to) / 2 + strip.getBoundingClientRect().left, bottom: strip.getBoundingClientRect().bottom, top: strip.getBoundingClientRect().top })
    }
    grip.onpointerleave = () => { line.classList.remove("hover"); tip.hidden = true }
    grip.onclick = () => {
      data.open = n
      tip.hidden = true
      marks(strip.closest(".painted"), own)
      arcs(strip, own, tip)
      scrollTo(strip.closest(".painted").querySelector(".text"), arc.query)
      own.send("arc", n)
    }
  }
}

function draw(strip, own, text) {
  const canvas = strip.querySelector("canvas"), { data } = own
  const scale = devicePixelRatio || 1
  canvas.width = Math.max(1, Math.round(strip.clientWidth * scale))
  canvas.height = Math.round(14 * scale)
  const pen = canvas.getContext("2d"), step = canvas.width / data.pieces.length
  const dark = luminance(getComputedStyle(strip).getPropertyValue("--st-background-color")) < 0.4
  data.paint.forEach((paint, i) => {
    if (paint < 0 || (data.isolate !== null && data.isolate !== undefined && paint !== data.isolate)) return
    const p = data.palette[paint]
    pen.fillStyle = dark ? p.dark : p.light
    pen.globalAlpha = Math.min(1, (dark ? p.mix_dark : p.mix) / 60)
    pen.fillRect(i * step, 0, Math.max(step, scale), canvas.height)
  })
  seen(strip, text)
}

function seen(strip, text) {
  const box = strip.querySelector(".seen"), all = text.scrollHeight || 1
  box.hidden = text.clientHeight >= all - 2
  box.style.left = `${(text.scrollTop / all) * 100}%`
  box.style.width = `${(text.clientHeight / all) * 100}%`
}

function scrollTo(text, i) {
  const span = token(text, i)
  if (span) text.scrollTop = span.offsetTop - text.clientHeight / 2
}

function luminance(colour) {
  const hex = colour.trim().match(/^#([0-9a-f]{6})/i)
  const [r, g, b] = hex ? [0, 2, 4].map((k) => parseInt(hex[1].slice(k, k + 2), 16)) : (colour.match(/\d+/g) ?? [255, 255, 255]).map(Number)
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255
}
