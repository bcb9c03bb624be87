// The card beside a text: what a token reads from afar and who reads it later, both places, and the list of all links.
// Exports nothing. `own.links`: of the tokens, as Python packed them (`linked` in painted.py).

const tokens = (n) => `${whole(n)} token${n === 1 ? "" : "s"}`

// Typed arrays of the links of all tokens: [reads and readers, token, n] of place, head and share. A page that computes
// links by itself (`own.linked`) sends the words alone.
function linked(sent) {
  if (!sent || typeof sent.word !== "string") return sent
  const of = (Kind, name) => new Kind(bytesOf(sent[name]).buffer)
  return { ...sent, place: of(Int32Array, "place"), head: of(Uint16Array, "head"), share: of(Uint16Array, "share"), word: of(Int32Array, "word") }
}

// Of token `i` the far tokens that it reads, or those that read it: [{at, head, share}], the strongest first.
function linksOf(own, i, readers) {
  if (own.linked) return own.linked(i, readers)
  const { links } = own, each = links.each, from = ((readers ? own.data.pieces.length : 0) + i) * each
  const found = []
  for (let n = from; n < from + each; n++)
    if (links.place[n] >= 0) found.push({ at: links.place[n], head: spelledHead(links.head[n], links.heads), share: links.share[n] / 65535 })
  return found
}

const spelledHead = (cell, heads) => `${Math.floor(cell / heads)}.${cell % heads}`

// First and past-the-last token of the whole word that a token is a piece of.
function wordAt(own, i) {
  const first = own.links.word[i]
  let stop = i + 1
  while (stop < own.links.word.length && own.links.word[stop] === first) stop++
  return [first, stop]
}

function wordOf(own, i) {
  const character = own.text.spelled.get(i)
  if (character) return character.spelled
  const [first, stop] = wordAt(own, i)
  return shown(own.data.pieces.slice(first, stop).join(""))
}

const AROUND = 16
// The text around a token, its word marked; `role` is key or query.
function quote(own, i, role) {
  const [first, stop] = wordAt(own, i)
  const p = element("p", `quote ${role}`)
  p.dataset.token = i
  const window = (at) => own.data.breaks.filter((edge) => edge <= at).length
  // Whole words at both ends.
  let [from] = wordAt(own, Math.max(0, first - AROUND)), [, to] = wordAt(own, Math.min(own.data.pieces.length, stop + AROUND) - 1)
  while (window(from) !== window(i)) from++
  while (window(to - 1) !== window(i)) to--
  const written = (a, b) => {
    let words = ""
    for (let j = a; j < b; j++) {
      const character = own.text.spelled.get(j)
      if (!character) words += own.data.pieces[j]
      else if (j === character.at) words += character.spelled
    }
    return words.replace(/\s+/g, " ")
  }
  const word = written(first, stop), lead = word.match(/^\s*/)[0]
  p.append(`… ${written(from, first).trimStart()}${lead}`, element("mark", role, word.trim() || shown(own.data.pieces[i])), `${written(stop, to)}\u00a0…`)
  Object.assign(p, { tabIndex: 0, role: "button", onclick: () => own.goto(i) })
  p.onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return
    event.preventDefault()
    own.goto(i)
  }
  return p
}

function bars(own, i, readers) {
  const rows = linksOf(own, i, readers)
  return rows.map(({ at, head, share }) => {
    const name = element("span", "name", "", wordOf(own, at), element("small", "", ` ${readers ? "+" : "−"}${whole(Math.abs(i - at))}`))
    const fill = element("i", "fill")
    fill.style.width = `${100 * share}%`
    const row = element("button", `row ${readers ? "reader" : "key"}`, "", name, element("span", "bar", "", fill), element("span", "number", percent(share)), element("span", "head", head))
    row.type = "button"
    Object.assign(row.dataset, { token: at, head, share: share.toFixed(5) })
    row.title = `head ${head} gives it ${percent(share)} of its attention`
    row.onclick = () => own.goto(at)
    return row
  })
}

// What the card says of a token: of one that reads nothing from afar, who reads it.
function ofToken(own, i) {
  const reads = linksOf(own, i, false), readers = linksOf(own, i, true), name = wordOf(own, i)
  const chance = 1 / (own.seat(i) + 1), [best, later] = [reads.find(({ at }) => at !== i), readers[0]]
  const facts = own.data.tips.map((tip) => [tip.label, tip.values[i]]).filter(([, value]) => value)
  const character = own.text.spelled.get(i)
  if (character) facts.push(["bytes", own.data.pieces.slice(character.first, character.at + 1).join(" · ")])
  const said = [`token ${whole(i)}`, ...facts.map(([label, value]) => `${label} ${value}`)].join(" · ")
  if (best)
    return { said, title: `“${name}” looks back ${tokens(i - best.at)} to “${wordOf(own, best.at)}”`, ...best, key: best.at, query: i, chance }
  if (later)
    return { said, title: `“${name}” is read ${tokens(later.at - i)} later by “${wordOf(own, later.at)}”`, ...later, key: i, query: later.at, chance: 1 / (own.seat(later.at) + 1) }
  return { said, title: `“${name}” has no link that far` }
}

function ofLink(own, n) {
  const pair = own.data.arcs[n]
  const title = `“${wordOf(own, pair.query)}” looks back ${tokens(pair.query - pair.key)} to “${wordOf(own, pair.key)}”`
  return { said: `${n ? "link" : "strongest link"} ${n + 1} of ${own.data.arcs.length}`, title, why: pair.why, ...pair, share: pair.attention }
}

// Draws the card about the token `i`, or about the open link where it is null.
function card(root, own, i) {
  const body = root.querySelector(".card .body")
  if (own.tab !== "card") return
  const link = i === null, about = link ? (own.data.arcs.length ? ofLink(own, own.data.open ?? 0) : null) : ofToken(own, i)
  if (!about) return body.replaceChildren(element("p", "quiet", "Point at a word: what it reads from afar, and who reads it later."))
  const top = element("div", "said", "", element("span", "", about.said))
  if (link) {
    for (const [step, sign, name] of [[-1, "‹", "the stronger link"], [1, "›", "the next link"]]) {
      const button = element("button", "step", sign)
      button.type = "button"
      button.setAttribute("aria-label", name)
      button.onclick = () => own.step(step)
      top.append(button)
    }
  }
  const parts = [top, element("h3", "", about.title)]
  if (about.head !== undefined) {
    const measured = element("p", "measured", "", `head ${about.head} · ${percent(about.share)} of its attention · chance ${percent(about.chance)}`)
    Object.assign(measured.dataset, { head: about.head, share: about.share.toFixed(5), chance: about.chance.toFixed(6), key: about.key, query: about.query })
    parts.push(measured)
    if (about.why) parts.push(element("p", "quiet", about.why))
    parts.push(quote(own, about.key, "key"), quote(own, about.query, "query"))
  }
  const token = i ?? about.query
  const found = bars(own, token, false), later = bars(own, token, true)
  if (found.length) parts.push(element("h4", "", `what “${wordOf(own, token)}” reads ${own.where ?? "from afar, by head"}`), ...found)
  if (later.length) parts.push(element("h4", "", "who reads it later"), ...later)
  if (about.head !== undefined && !own.linked) {
    const pills = [[`Open head ${about.head}`, ""], ["Why this key?", ".why"]].map(([label, tab]) => {
      const pill = element("button", "pill", label)
      pill.type = "button"
      pill.onclick = () => own.send("head", `${about.head}.${about.query}.${about.key}${tab}`)
      return pill
    })
    parts.push(element("div", "pills", "", ...pills))
  }
  body.replaceChildren(...parts)
}

// All links as rows, the strongest first.
function list(root, own) {
  const rows = own.data.arcs.map((pair, n) => {
    const words = element("span", "name", "", wordOf(own, pair.query), element("small", "", " → "), wordOf(own, pair.key))
    const row = element("button", "row link", "", words, element("span", "number", `−${whole(pair.query - pair.key)}`), element("span", "number", percent(pair.attention)), element("span", "head", pair.head))
    row.type = "button"
    row.setAttribute("aria-pressed", own.data.open === n)
    row.dataset.head = pair.head
    row.title = pair.why ?? ""
    row.onclick = () => own.opened(n)
    return row
  })
  const none = element("p", "quiet", own.data.none ?? "No link that far.")
  const names = ["reads → earlier word", "back", "share", "head"].map((name, n) => element("span", n ? "number" : "name", name))
  const top = element("div", "row titles", "", ...names)
  root.querySelector(".card .body").replaceChildren(...(rows.length ? [top, ...rows] : [none]))
}
