// The report that thinks: a text with the queries and keys of its heads, at any temperature and with ever fewer keys.

const sent = JSON.parse(packedIn("read")), pool = workers(), root = document.getElementById("screen")
const read = { ...sent.read, queries: floats(packedIn("queries")), keys: floats(packedIn("keys")) }
const rows = SHARES.map((share) => ({ share, keys: share < 1 ? keysFor(share, read.length) : read.length, low: null }))
const warm = document.getElementById("warm"), slider = warm.querySelector("input")

function drawn(root, page) {
  const all = read.heads.length, own = memory.get(root)
  rows.forEach((row, step) => { row.held = mean(page.found.held.subarray(step * all, (step + 1) * all)) })
  document.getElementById("answer").textContent = answer(page)
  const support = (place) => Math.exp(place === null ? mean(page.found.entropy) : page.found.entropy[place])
  const held = own?.kept_head ?? null
  warm.querySelector("output").replaceChildren("as if ", element("b", "", support(held).toFixed(1)), " tokens had equal weight")
  Object.assign(document.body.dataset, { t: page.t, count: page.count ?? read.length, far: mean(page.found.far), entropy: mean(page.found.entropy), held: JSON.stringify(rows.map((row) => row.held)) })
  return show(root, page)
}

slider.oninput = () => {
  const own = memory.get(root)
  if (!own) return
  own.t = Number(slider.value)
  warm.querySelector(".share").textContent = own.t.toFixed(2)
  slider.style.setProperty("--at", `${(100 * (slider.value - slider.min)) / (slider.max - slider.min)}%`)
  if (own.head !== null) told(root, own)
  again(root, own)
}

const counts = rows.map(({ keys }) => keys), ask = (t, count) => pool.summary(read, t, counts, count)
await pool.each({ act: "read", read })
const page = { place: "text", read, pieces: sent.pieces, words: wordStarts(sent.pieces), rows, t: 1, count: null, code: sent.code, ask, shown: drawn }
const found = await ask(page.t, page.count)
document.querySelector(".read .keep").after(warm)
root.hidden = warm.hidden = false
drawn(root, { ...page, found })
