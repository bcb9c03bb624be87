// Two places of a text side by side, one word highlighted in each. Text reaches the page as text nodes only.
const memory = new WeakMap()

export default function ({ parentElement, data: sent }) {
  const data = sent?.[0]
  const root = parentElement.querySelector(".contexts")
  if (!root || !data) return
  const own = memory.get(parentElement) ?? {}
  memory.set(parentElement, own)
  const fit = () => root.classList.toggle("narrow", root.clientWidth < 620)
  own.watch?.disconnect()
  own.watch = new ResizeObserver(fit)
  own.watch.observe(root)
  fit()
  if (own.id !== data.id || !root.firstChild) {
    own.id = data.id
    root.classList.toggle("code", data.code)
    root.replaceChildren(...data.panels.map(panel))
    for (const hit of root.querySelectorAll(".hit")) {
      const p = hit.closest("p")
      const line = parseFloat(getComputedStyle(p).lineHeight)
      p.scrollTop = Math.round((hit.offsetTop - p.clientHeight / 2) / line) * line
    }
  }
  return () => own.watch.disconnect()
}

function panel(side) {
  const article = document.createElement("article")
  article.className = side.role
  const header = document.createElement("header")
  const title = document.createElement("b")
  title.textContent = side.title
  const note = document.createElement("span")
  note.textContent = side.note
  header.append(title, note)
  const p = document.createElement("p")
  p.tabIndex = 0
  if (side.cut_before) p.append(cut())
  const same = new Set(side.same)
  side.pieces.forEach((piece, i) => {
    if (!piece) return // a byte of the character before it
    const inside = i >= side.word[0] && i < side.word[1]
    const lead = piece.trim() ? piece.match(/^\s*/)[0] : ""
    if (lead) p.append(lead)
    if (!inside && !same.has(i)) return p.append(piece.slice(lead.length))
    const node = document.createElement(inside ? "mark" : "span")
    node.className = i === side.hit ? "hit" : inside ? "" : "same"
    node.textContent = piece.trim() ? piece.slice(lead.length) : piece.replace(/ /g, "·").replace(/\n/g, "↵\n")
    p.append(node)
  })
  if (side.cut_after) p.append(cut())
  article.append(header, p)
  return article
}

function cut() {
  const span = document.createElement("span")
  span.className = "cut"
  span.textContent = " … "
  return span
}
