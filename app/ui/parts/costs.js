// What attention costs in a model: analysis/costs again, from the coefficients of its shape, while the hand moves.
// Pages put this file in front of their own script (`part` in painted.py); tests run it in node against Python.

// Longest context and largest batch that are looked at, as in analysis/costs/shape.py.
const MOST_CONTEXT = 2 ** 24, MOST_BATCH = 2 ** 16

const total = (rows, count) => rows.reduce((sum, row) => sum + count(...row), 0)

// Of every kind of layer: keys that a query sees at most, and layers.
const spans = (parts, context) =>
  parts.windows.map(([window, layers]) => [window === null ? context : Math.min(context, window), layers])

const pairs = (parts, context) =>
  total(spans(parts, context), (span, layers) => layers * ((span * (span + 1)) / 2 + (context - span) * span))

// Bytes of the KV cache of a sequence, and of the weights that a step of a batch reads.
const cacheBytes = (parts, context) => parts.key_bytes * total(spans(parts, context), (span, layers) => span * layers)
const weightBytes = (parts, batch) => parts.step_bytes + total(parts.experts,
  (size, experts, active, layers) => size * experts * (1 - (1 - active / experts) ** batch) * layers)

const faster = (share, keep) => 1 / (1 - share + share * keep)

// The largest possible gains: before the first token by arithmetic, later by bytes.
function gains(parts, context, batch, keep) {
  const attention = parts.pair_flops * pairs(parts, context)
  const besides = parts.token_flops * context + parts.once_flops
  const cache = batch * cacheBytes(parts, context)
  const shares = [attention / (attention + besides), cache / (cache + weightBytes(parts, batch))]
  const [prefill, token] = shares.map((share) => faster(share, keep))
  return { prefill, token, most: Math.max(prefill, token) }
}

// The shortest context whose largest gain reaches a goal; null where none does.
function reaches(parts, batch, keep, goal) {
  let [low, high] = [1, MOST_CONTEXT + 1]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    if (gains(parts, middle, batch, keep).most >= goal) high = middle
    else low = middle + 1
  }
  return low > MOST_CONTEXT ? null : low
}

// A step at best: every byte once at full bandwidth, every multiplication at the full rate.
function stepSeconds(made, gpu, context, batch, keep) {
  const parts = made.time, cache = batch * cacheBytes(parts, context) * keep
  const products = made.product_flops * batch * weightBytes(parts, 1)
  return Math.max((cache + weightBytes(parts, batch)) / gpu.bandwidth, (made.score_flops * cache + products) / gpu.flops)
}

function largestBatch(made, gpu, context, keep) {
  const fits = Math.floor((gpu.memory - made.model_bytes) / (keep * cacheBytes(made.time, context)))
  return Math.max(0, Math.min(fits, MOST_BATCH))
}

// What a GPU takes and holds at best, with all keys (keep 1) or a share of them.
function estimate(made, gpu, context, batch, keep) {
  const parts = made.time, largest = largestBatch(made, gpu, context, keep)
  const attention = parts.pair_flops * pairs(parts, context) * keep
  const cache = batch * cacheBytes(parts, context) * keep
  return {
    first: (batch * (attention + parts.token_flops * context + parts.once_flops)) / gpu.flops,
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
  const words = { context: short(context), keep: `${Number((100 * keep).toPrecision(3))} %`, prefill: gain.prefill.toFixed(1) }
  Object.assign(words, { token: gain.token.toFixed(1), needed: needed && short(twoDigits(needed)) })
  return made.verdicts[answer].replace(/\{(\w+)\}/g, (_, name) => words[name])
}
