// What attention costs in a model: analysis/costs again, from the coefficients of its shape, while the hand moves.
// Pages put this file in front of their own script (`part` in painted.py); tests run it in node against Python.

// Longest context, largest batch and contexts tried for each doubling, as in analysis/costs/shape.py.
const MOST_CONTEXT = 2 ** 24, MOST_BATCH = 2 ** 16, TRIED = 4

const total = (rows, count) => rows.reduce((sum, row) => sum + count(row), 0)
const atMost = (count, limit) => (limit === null ? count : Math.min(count, limit))

// What a layer caches of a text (`Entries` in analysis/costs/layer.py): entries in the cache, those that a step reads,
// and pairs of a prompt.
const cached = (entries, context) => entries.shared ? 0 : atMost(Math.floor(context / entries.every), entries.capacity)
const inStep = (entries, context) => atMost(Math.floor(context / entries.every), entries.limit)
function pairs(entries, context) {
  if (entries.chunked && entries.capacity) {
    const whole = Math.floor(context / entries.capacity), rest = context % entries.capacity
    return (whole * entries.capacity * (entries.capacity + 1)) / 2 + (rest * (rest + 1)) / 2
  }
  const last = inStep(entries, context)
  return (entries.every * last * (last - 1)) / 2 + last * (context - last * entries.every + 1)
}

// Sums over all layers: of the keys that a method can leave out, or (selects) of an indexer's own, which stay.
const summed = (parts, selects, count) =>
  total(parts.entries, (entries) => entries.selects === selects ? entries.layers * count(entries) : 0)
const promptFlops = (parts, context, selects) =>
  summed(parts, selects, (entries) => entries.pair_flops * pairs(entries, context))
const stepBytes = (parts, context, selects) =>
  summed(parts, selects, (entries) => entries.bytes * inStep(entries, context))

// Bytes of the cache of a sequence that holds a share of the keys, and of the weights that a step of a batch reads.
function cacheBytes(parts, context, keep) {
  const [keys, indexes] = [false, true].map((selects) =>
    summed(parts, selects, (entries) => entries.bytes * cached(entries, context)))
  return keep * keys + indexes + parts.state_bytes
}
const weightBytes = (parts, batch) => parts.step_bytes + total(parts.experts,
  ([size, experts, active, layers]) => size * experts * (1 - (1 - active / experts) ** batch) * layers)

const faster = (share, keep) => 1 / (1 - share + share * keep)

// What everything else costs: arithmetic of a prompt, bytes of a step.
const promptRest = (parts, context) =>
  parts.token_flops * context + parts.once_flops + promptFlops(parts, context, true)
const stepRest = (parts, context, batch) =>
  weightBytes(parts, batch) + batch * (stepBytes(parts, context, true) + parts.state_bytes)

// The largest possible gains: before the first token by arithmetic, later by bytes.
function gains(parts, context, batch, keep) {
  const attention = promptFlops(parts, context, false), keys = batch * stepBytes(parts, context, false)
  const shares = [attention / (attention + promptRest(parts, context)), keys / (keys + stepRest(parts, context, batch))]
  const [prefill, token] = shares.map((share) => faster(share, keep))
  return { prefill, token, most: Math.max(prefill, token) }
}

// The shortest context whose largest gain reaches a goal; null where none does. Gains may fall again where windows are
// full, so a few contexts of every doubling are tried.
function reaches(parts, batch, keep, goal) {
  let before = 0
  for (const context of CONTEXTS_TRIED) {
    if (gains(parts, context, batch, keep).most >= goal) {
      let [low, high] = [before + 1, context]
      while (low < high) {
        const middle = Math.floor((low + high) / 2)
        if (gains(parts, middle, batch, keep).most >= goal) high = middle
        else low = middle + 1
      }
      return low
    }
    before = context
  }
  return null
}
const CONTEXTS_TRIED = [...new Set(Array.from({ length: TRIED * Math.log2(MOST_CONTEXT) + 1 },
  (_, place) => Math.floor(2 ** (place / TRIED))))]

// A step at best: every byte once at full bandwidth, every multiplication at the full rate.
function stepSeconds(made, gpu, context, batch, keep) {
  const parts = made.time
  const bytes = keep * batch * stepBytes(parts, context, false) + stepRest(parts, context, batch)
  const products = total(parts.entries, (entries) =>
    (entries.selects ? 1 : keep) * entries.layers * entries.step_flops * inStep(entries, context))
  const flops = batch * (parts.token_flops + parts.once_flops + products)
  return Math.max(bytes / gpu.bandwidth, flops / gpu.flops)
}

function largestBatch(made, gpu, context, keep) {
  const fits = Math.floor((gpu.memory - made.model_bytes) / cacheBytes(made.time, context, keep))
  return Math.max(0, Math.min(fits, MOST_BATCH))
}

// What a GPU takes and holds at best, with all keys (keep 1) or a share of them.
function estimate(made, gpu, context, batch, keep) {
  const parts = made.time, largest = largestBatch(made, gpu, context, keep)
  const cache = batch * cacheBytes(parts, context, keep)
  return {
    first: (batch * (keep * promptFlops(parts, context, false) + promptRest(parts, context))) / gpu.flops,
    token: stepSeconds(made, gpu, context, batch, keep),
    cache,
    fits: made.model_bytes + cache <= gpu.memory,
    largest,
    rate: largest / stepSeconds(made, gpu, context, Math.max(largest, 1), keep),
  }
}

// Tokens as people say them: 131072 is 128k, 31000 is 31k.
function short(tokens) {
  const thousand = tokens % 1024 === 0 ? 1024 : 1000
  if (tokens >= thousand ** 2) return `${Number((tokens / thousand ** 2).toPrecision(3))}M`
  return tokens >= thousand ? `${Number((tokens / thousand).toPrecision(3))}k` : String(tokens)
}

// All that an estimate says.
function twoDigits(tokens) {
  const unit = 10 ** Math.max(0, String(tokens).length - 2)
  return Math.round(tokens / unit) * unit
}

// The answer, in the words that Python sent.
function verdict(made, longest, context, batch, keep) {
  const gain = gains(made.gain, context, batch, keep), needed = reaches(made.gain, batch, keep, made.goal)
  const reachable = needed !== null && needed <= Math.max(longest ?? needed, context)
  const answer = gain.most >= made.goal ? "yes" : reachable ? "later" : "no"
  const words = { context: short(context), keep: `${Number((100 * keep).toPrecision(3))}%`, prefill: gain.prefill.toFixed(1) }
  Object.assign(words, { token: gain.token.toFixed(1), needed: needed && short(twoDigits(needed)) })
  Object.assign(words, { prefill_more: Math.round(100 * (gain.prefill - 1)), token_more: Math.round(100 * (gain.token - 1)) })
  return made.verdicts[answer].replace(/\{(\w+)\}/g, (_, name) => words[name])
}
