// A text and what its queries and keys say, on the screen of Read: painted text, links, card, slider, and a map of heads.
// Exports nothing; the scripts of Read and of the map (`readScreen`, `headMap`) stand before it.

const LEVELS = [[1, "1–2", 13, 18], [2, "2–4", 26, 32], [4, "4–8", 42, 48], [8, "8–16", 60, 62], [16, "over 16", 82, 76]]
const FAR = "#C97A14"
const SHARES = [1, 0.75, 0.5, 0.35, 0.2, 0.15, 0.1, 0.05, 0.03, 0.02]
const ARCS = 20, PEAKS = 12, ROWS = 6
const HINT = "Point at a head: what it reads. Click: it stays."

// First token of the word that each token is a piece of.
function wordStarts(pieces) {
  const starts = new Int32Array(pieces.length)
  for (let i = 1; i < pieces.length; i++) {
    const goes = /^[\p{L}\p{N}\p{M}]/u.test(pieces[i]) && /[\p{L}\p{N}\p{M}]$/u.test(pieces[i - 1])
    starts[i] = goes || pieces[i - 1] === "" ? starts[i - 1] : i
  }
  return starts
}

// Far attention that each token draws, in multiples of chance; null where no query is far enough.
const timesChance = (found) => Array.from(found.received, (drawn, i) => (found.expected[i] > 0 ? drawn / found.expected[i] : null))

// The strongest far links between words, one for each word that reads: what the arcs show.
function strongest(page) {
  const { read, pieces, words, found } = page, best = new Map()
  const spelled = (i) => /[\p{L}\p{N}]/u.test(pieces[i])
  for (let i = 0; i < read.length; i++) {
    const at = i * LINKS, key = found.links.place[at], share = found.links.share[at]
    if (key < 0 || !spelled(i) || !spelled(key) || share <= (best.get(words[i])?.attention ?? 0)) continue
    best.set(words[i], { query: i, key, attention: share, head: read.heads[found.links.head[at]].name })
  }
  return [...best.values()].sort((a, b) => b.attention - a.attention).slice(0, ARCS)
}

function span(words, i) {
  let stop = i + 1
  while (stop < words.length && words[stop] === words[i]) stop++
  return Array.from({ length: stop - words[i] }, (_, n) => words[i] + n)
}

// What the screen of Read takes. `page`: { place, read, pieces, words, found, rows, t, count, code, ask }; `place` names the
// text and `ask(t, count)` resolves to what another temperature and fewer keys find.
function described(page) {
  const { read, pieces, words, found, rows } = page, times = timesChance(found)
  const paint = times.map((value) => LEVELS.filter(([floor]) => value !== null && value > floor).length - 1)
  const palette = LEVELS.map(([, name, mix, mix_dark]) => ({ tag: "Aa", name, light: FAR, dark: FAR, mix, mix_dark }))
  const arcs = strongest(page).map((link) => ({
    ...link, why: "", chance: 1 / (link.query + 1), mark: [...span(words, link.query), ...span(words, link.key)],
    label: `${pieces[link.query].trim()} ← ${pieces[link.key].trim()}, ${whole(link.query - link.key)} tokens back`,
  }))
  const above = times.flatMap((value, i) => (value > 1 && read.length - i >= 2 * read.distance ? [i] : []))
  const kept = new Uint8Array(found.kept.length)
  for (let at = 0; at < kept.length; at++) {
    const all = found.kept[at % read.length]
    kept[at] = all > 0 ? Math.round((254 * found.kept[at]) / all) : 255
  }
  return {
    id: `${page.place} ${page.t} ${page.count}`, place: page.place, answered: page.place, pieces, paint, palette, arcs, code: page.code, locked: page.locked,
    characters: [], tips: [{ label: "drawn, times chance", values: times.map((value) => value?.toFixed(1)) }], breaks: [],
    faint: [], legend_title: `read from ${read.distance} or more tokens later, times chance`,
    open: arcs.length ? 0 : null, peaks: above.sort((a, b) => times[b] - times[a]).slice(0, PEAKS).sort((a, b) => a - b),
    links: { word: words }, keep: { rows, tokens: read.length, covers: "best keys", kept }, keep_waits: null,
    tabs: { card: "This word", links: `All links, ${arcs.length}` }, tab: "card", map: null, isolates: false, isolate: null,
    none: "No link that far.", clickable: true, crossed: null,
  }
}

// Draws a page, anew where its text or its numbers are others. Returns what the screen remembers.
function show(root, page) {
  const own = Object.assign(memory.get(root) ?? { spaces: false, now: null, id: null, touched: null, kept_head: null, step_at: 0, t: page.t }, { page })
  memory.set(root, own)
  const another = own.shown !== page.place
  if (another) Object.assign(own, { shown: page.place, locked: null, touched: null })
  own.head = own.kept_head
  page.locked = own.locked ?? null
  own.linked = (i, readers) => (own.head === null ? farLinks(own, i, readers) : headLinks(own, i, readers))
  own.where = own.head === null ? undefined : `in head ${page.read.heads[own.head].name}`
  const data = described(page)
  if (!another) own.open = data.arcs.length ? Math.min(own.open ?? 0, data.arcs.length - 1) : null
  readScreen({ parentElement: root, data: [data], setTriggerValue: () => {} })
  heads(root, own)
  const slider = root.querySelector(".keep input")
  slider.onchange = () => again(root, own)
  if (own.watched) return own
  own.watched = true
  slider.addEventListener("input", () => { if (own.head !== null) told(root, own) })
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paintAll(root, own, root.querySelector(".tip")))
  return own
}

// What the sliders say now, from the workers: one question at a time, the last one always.
async function again(root, own) {
  own.moved = true
  if (own.asking) return
  own.asking = true
  while (own.moved) {
    own.moved = false
    const { page, t } = own, count = own.step_at ? page.rows[own.step_at].keys : null
    const found = await page.ask(t, count)
    if (found && own.page.place === page.place) (page.shown ?? show)(root, { ...own.page, found, t, count })
  }
  own.asking = false
}

// Of a token the far links of all heads, as the summary found them.
function farLinks(own, i, readers) {
  const { links } = own.page.found, from = ((readers ? own.page.read.length : 0) + i) * LINKS, rows = []
  for (let at = from; at < from + LINKS; at++)
    if (links.place[at] >= 0) rows.push({ at: links.place[at], head: own.page.read.heads[links.head[at]].name, share: links.share[at] })
  return rows
}

// Of a token what one head reads, near and far, or who reads it there, at the sliders' values.
function headLinks(own, i, readers) {
  const { page: { read }, t } = own, head = read.heads[own.head], count = own.page.rows[own.step_at].keys
  const named = ([at, share]) => ({ at, head: head.name, share })
  if (!readers) {
    const { first, weights } = rowOf(read, head, i, t, count)
    return topKeys(weights, ROWS, first).filter(([, share]) => share > 0.005).map(named)
  }
  const shares = new Float32Array(read.length - i - 1)
  for (let n = 0; n < shares.length; n++) {
    const { first, weights } = rowOf(read, head, i + 1 + n, t, count)
    shares[n] = weights[i - first] ?? 0
  }
  return topKeys(shares, LINKS, i + 1).filter(([, share]) => share > 0.005).map(named)
}

// The map over the card. A head that is pointed at or in focus paints what the token in use reads; a click keeps it.
function heads(root, own) {
  const { read, found } = own.page, aside = root.querySelector(".card")
  if (!aside.querySelector(".heads")) aside.prepend(document.getElementById("heads").content.cloneNode(true))
  const box = aside.querySelector(".heads"), names = read.heads.map(({ name }) => name), widest = Math.log(Math.max(2, read.length))
  const layers = [...new Set(names.map((name) => Number(name.split(".")[0])))].sort((a, b) => b - a)
  const far = Array.from(found.far), top = Math.max(...far, 1e-9), support = Array.from(found.entropy, Math.exp)
  const bestOf = (values) => names[values.indexOf(Math.max(...values))]
  const by = (strong, words) => Object.fromEntries(names.map((name, n) => [name, [strong(n), words(n)]]))
  const sharp = Array.from(found.entropy, (nats) => 1 - nats / widest)
  const measures = [
    { name: "far", chip: "Reads farthest", best: bestOf(far), title: "attention from afar", low: "0%", high: percent(top),
      cells: by((n) => far[n] / top, (n) => `${percent(far[n])} from afar`) },
    { name: "sharp", chip: "Sharpest", best: bestOf(sharp), title: "sharpness", low: "even", high: "one token",
      cells: by((n) => Math.max(0, sharp[n]), (n) => `as if ${support[n].toFixed(1)} tokens had equal weight`) },
  ]
  const chosen = own.kept_head === null ? [-1, -1] : names[own.kept_head].split(".").map(Number)
  headMap({
    parentElement: aside, setTriggerValue: (name, value) => { if (name === "head") keepHead(root, own, names.indexOf(value)); else own.measure = value },
    data: [{ rows: layers.map((layer) => [layer, ""]), heads: read.width, measures, measure: own.measure ?? "far", chosen, letters: {}, about: {}, hint: HINT }],
  })
  const grid = box.querySelector(".map"), cells = [...grid.querySelectorAll("button")]
  if (!cells.some((cell) => cell.tabIndex === 0)) cells[0].tabIndex = 0
  const at = (target) => names.indexOf(`${target.dataset?.layer}.${target.dataset?.head}`)
  const point = (place) => { if (place !== own.head) pointHead(root, own, place) }
  const look = (event) => { const place = at(event.target); if (place >= 0) point(place) }
  const away = () => point(own.kept_head)
  // The head that has the focus stays pointed at when numbers come anew.
  const focused = document.activeElement
  if (focused && at(focused) >= 0) focused.dispatchEvent(new Event("pointerover", { bubbles: true }))
  if (own.heard === box) return
  own.heard = box
  grid.addEventListener("pointerover", look)
  grid.addEventListener("focusin", look)
  grid.addEventListener("pointerleave", away)
  grid.addEventListener("focusout", away)
}

function keepHead(root, own, place) {
  own.kept_head = own.kept_head === place ? null : place
  heads(root, own)
  root.querySelector(".card .map button[tabindex='0']")?.focus()
  pointHead(root, own, own.kept_head)
}

// The token in use stays; where there is none it is that of the open link.
function pointHead(root, own, place) {
  own.head = place
  own.where = place === null ? undefined : `in head ${own.page.read.heads[place].name}`
  const link = own.data.arcs[own.open ?? 0]
  if (place !== null && own.touched === null && typeof own.locked !== "number" && link) {
    own.lent = true
    own.touched = link.query
  } else if (place === null && own.lent) Object.assign(own, { lent: false, touched: null })
  told(root, own)
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length

const FRACTIONS = [[1 / 5, "A fifth"], [1 / 4, "A quarter"], [1 / 3, "A third"], [1 / 2, "Half"], [2 / 3, "Two thirds"]]
// The answer in one sentence.
function answer({ read, found }) {
  const share = mean(found.far)
  const near = FRACTIONS.find(([value]) => Math.abs(value - share) <= 0.015)
  return `${near ? near[1] : percent(share)} of the attention goes ${read.distance} or more tokens back.`
}
