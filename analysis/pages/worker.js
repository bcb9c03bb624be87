// One of the workers of a page: the model's forward pass, and what queries and keys say. Each message is an object whose
// `act` names what is asked and `id` the question; the answer has the same id.

let model = null, read = null, port = null, now = 0
// Promises of the keys and values of the tokens in front, by text and layer, as the worker that reads those sends them.
const earlier = new Map()

async function unpacked(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

function arrives(text, layer) {
  const name = `${text} ${layer}`
  if (!earlier.has(name)) {
    const awaited = { text }
    awaited.promise = new Promise((resolve) => { awaited.resolve = resolve })
    earlier.set(name, awaited)
  }
  return earlier.get(name)
}

// Lets go of all texts but one.
function forget(text) {
  for (const [name, awaited] of earlier) {
    if (awaited.text === text) continue
    awaited.resolve({})
    earlier.delete(name)
  }
}

const ACTS = {
  async model({ packed, manifest, config }) {
    model = { config, tensors: weights(await unpacked(packed), manifest) }
    return {}
  },
  // A whole text, or a part of one of which the port leads to the worker of the other part.
  async forward({ ids, text, part, ...options }) {
    const stopped = async () => {
      await new Promise((done) => setTimeout(done))
      return text !== now
    }
    const before = (layer) => arrives(text, layer).promise
    const after = part === "first" ? (layer, k, v) => port.postMessage({ layer, k, v, text }) : undefined
    return (await forward(model, ids, { ...options, before, after, stopped })) ?? { stopped: true }
  },
  async read(message) {
    read = message.read
    return {}
  },
  // A question about another text than the one that is held comes too early or too late.
  async summary({ text, chosen, t, counts, count }) {
    return text === read.text ? { chosen, found: summary(read, chosen, t, counts, count) } : { stopped: true }
  },
}

onmessage = async ({ data: { id, act, ...message } }) => {
  if (act === "text") {
    now = message.text
    return forget(now)
  }
  if (act === "port") {
    port = message.port
    port.onmessage = ({ data }) => { if (data.text >= now) arrives(data.text, data.layer).resolve(data) }
    return
  }
  try {
    postMessage({ id, answer: await ACTS[act](message) })
  } catch (error) {
    postMessage({ id, error: `${error}` })
  }
}
