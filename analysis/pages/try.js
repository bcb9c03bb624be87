// The page that needs no installation: a model's forward pass on a text of the reader's own, in this page alone.

const MOST = 512, FARTHEST = 128, PAUSE = 350
const pool = workers(), model = JSON.parse(packedIn("model")), tokenizer = new Tokenizer(model.tokenizer)
const root = document.getElementById("screen"), field = document.getElementById("own"), scope = document.getElementById("scope")
let text = 0, due = null

function bytesIn(name) {
  const packed = atob(packedIn(name)), bytes = new Uint8Array(packed.length)
  for (let n = 0; n < bytes.length; n++) bytes[n] = packed.charCodeAt(n)
  return bytes
}
const ready = pool.each({ act: "model", packed: bytesIn("weights"), manifest: model.manifest, config: model.config })

// Two workers read a part each; the second waits for the keys and values of the first, layer by layer.
async function parts(ids, wanted = false) {
  const asked = { act: "forward", ids, text, keys: null, wanted }
  if (pool.all.length < 2 || ids.length < 64) return [await pool.ask(0, asked)]
  const middle = Math.ceil((ids.length * 0.53) / 4) * 4
  return Promise.all([pool.ask(0, { ...asked, part: "first", last: middle }), pool.ask(1, { ...asked, first: middle })])
}

// Queries and keys of all tokens, by head.
function readOf(ids, found) {
  const { layers, heads, groups, size } = model.config, length = ids.length
  const gather = (name, count) => {
    const all = new Float32Array(layers * count * length * size)
    let from = 0
    for (const part of found) {
      const n = part[name][0].length / (count * size)
      for (let layer = 0; layer < layers; layer++) for (let i = 0; i < n; i++) for (let h = 0; h < count; h++)
        all.set(part[name][layer].subarray((i * count + h) * size, (i * count + h + 1) * size), ((layer * count + h) * length + from + i) * size)
      from += n
    }
    return all
  }
  const each = Array.from({ length: layers * heads }, (_, n) => {
    const layer = Math.floor(n / heads), head = n % heads, group = Math.floor((head * groups) / heads)
    const places = { q: n * length * size, k: (layer * groups + group) * length * size }
    return { name: `${layer}.${head}`, size, ...places, scaling: size ** -0.5, cap: null, window: null }
  })
  const distance = Math.max(1, Math.min(FARTHEST, (length - 1) >> 1))
  return { length, distance, width: heads, heads: each, queries: gather("queries", heads), keys: gather("keys", groups) }
}

async function readText(words) {
  const mine = ++text, ids = tokenizer.encode(words, MOST), all = tokenizer.encode(words, MOST + 1).length
  pool.all.forEach((_, n) => pool.tell(n, { act: "text", text }))
  if (ids.length < 2) return say("Type at least two words.")
  say(root.hidden ? "Unpacking the model." : `Reading ${whole(ids.length)} tokens.`)
  await ready
  const began = performance.now(), found = await parts(ids)
  if (mine !== text || found.some((part) => part.stopped)) return
  const loss = mean(found.flatMap((part) => [...part.losses])), read = { ...readOf(ids, found), text: mine }
  const took = performance.now() - began
  const rows = SHARES.map((share) => ({ share, keys: share < 1 ? keysFor(share, ids.length) : ids.length, loss: null, change: null, low: null }))
  Object.assign(rows[0], { loss, change: 0 })
  await pool.each({ act: "read", read })
  const summed = await pool.summary(read, 1, rows.map(({ keys }) => keys), null)
  if (mine !== text) return
  const pieces = tokenizer.pieces(ids), code = /^(    |\t)/m.test(words), counts = rows.map(({ keys }) => keys)
  const ask = (t, count) => pool.summary(read, t, counts, count)
  const page = { place: `text ${text}`, read, pieces, words: wordStarts(pieces), found: summed, rows, t: 1, count: null, code, ask }
  root.hidden = false
  document.getElementById("answer").textContent = answer(page)
  const own = show(root, page)
  const cut = all > MOST ? `first ${MOST} tokens` : `${whole(ids.length)} tokens`
  say(`${cut} · read in ${(took / 1000).toFixed(1)} s by ${(model.numbers / 1e6).toFixed(1)} million weights in this page · nothing leaves it`)
  Object.assign(document.body.dataset, { text, took, loss, tokens: ids.length, far: mean(summed.far) })
  await Promise.all(pool.all.map((_, n) => losses(n, ids, own, mine)))
  if (mine === text) document.body.dataset.measured = text
}

// One worker after the other takes the loss that is nearest to where the slider stands.
async function losses(n, ids, own, mine) {
  const { rows } = own.page
  for (;;) {
    const open = rows.map((row, step) => [row, step]).filter(([row]) => row.loss === null && !row.taken)
    if (!open.length || mine !== text) return
    const [row] = open.sort(([, a], [, b]) => Math.abs(a - own.step_at) - Math.abs(b - own.step_at))[0]
    row.taken = true
    const found = await pool.ask(n, { act: "forward", ids, text: mine, keys: row.keys })
    if (found.stopped || mine !== text) return
    row.loss = mean(found.losses)
    row.change = Math.exp(row.loss - rows[0].loss) - 1
    keep(root, own)
  }
}

function say(words) {
  scope.textContent = words
}

function take(words) {
  field.value = words
  readText(words).catch((error) => say(`The text could not be read: ${error.message}`))
}

field.oninput = () => {
  clearTimeout(due)
  due = setTimeout(() => take(field.value), PAUSE)
}
document.getElementById("texts").replaceChildren(...Object.entries(model.texts).map(([name, words]) => {
  const button = element("button", "", name)
  button.type = "button"
  button.onclick = () => take(words)
  return button
}))
document.body.ondragover = (event) => event.preventDefault()
document.body.ondrop = async (event) => {
  event.preventDefault()
  const [file] = event.dataTransfer.files
  take(file ? await file.text() : event.dataTransfer.getData("text"))
}
take(Object.values(model.texts)[0])
