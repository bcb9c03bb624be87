// Attention from queries and keys in float16: any row of any head at any temperature, while the hand moves.
// Pages put this file in front of their own script (`part` in painted.py); tests run it in node against Python.

const HALVES = new Float32Array(1 << 16)
for (let bits = 0; bits < HALVES.length; bits++) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023
  const special = fraction ? NaN : Infinity
  const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : (fraction / 1024) * 2 ** -14
  HALVES[bits] = (bits >> 15 ? -1 : 1) * (exponent === 31 ? special : size)
}

// float32 of the float16 numbers that Python packed (`painted.halves`).
function floats(packed) {
  const raw = atob(packed), numbers = new Float32Array(raw.length / 2)
  for (let n = 0; n < numbers.length; n++) numbers[n] = HALVES[raw.charCodeAt(2 * n) | (raw.charCodeAt(2 * n + 1) << 8)]
  return numbers
}

// Scores of a query (numbers from `at` of `queries`) with the keys first..last of one key head, before any temperature.
// `keys` [length, size] begin at `from`.
function scores(queries, at, keys, from, size, scaling, first, last) {
  const row = new Float32Array(last - first + 1)
  for (let key = first; key <= last; key++) {
    let sum = 0
    for (let n = 0, k = from + key * size; n < size; n++, k++) sum += queries[at + n] * keys[k]
    row[key - first] = sum * scaling
  }
  return row
}

// The first key that a query sees where a layer slides over `window` tokens; null sees all.
const firstKey = (query, window) => window === null ? 0 : Math.max(0, query - window + 1)

// What the softmax sees of a score: the temperature acts before the soft cap.
const capped = (score, t, cap) => cap === null ? score / t : cap * Math.tanh(score / (t * cap))

// Attention of a row of scores at temperature t.
function softmax(row, t, cap = null) {
  const weights = new Float32Array(row.length)
  let most = -Infinity, total = 0
  for (let n = 0; n < row.length; n++) most = Math.max(most, weights[n] = capped(row[n], t, cap))
  for (let n = 0; n < row.length; n++) total += weights[n] = Math.exp(weights[n] - most)
  for (let n = 0; n < row.length; n++) weights[n] /= total
  return weights
}

// Entropy in nats, the tokens of equal weight that have it, and the largest weight, without a list of the weights.
function sharpness(row, t, cap = null) {
  let most = -Infinity, total = 0, weighed = 0
  for (let n = 0; n < row.length; n++) if (row[n] > most) most = row[n]
  most = capped(most, t, cap)
  for (let n = 0; n < row.length; n++) {
    const below = capped(row[n], t, cap) - most, weight = Math.exp(below)
    total += weight
    weighed += weight * below
  }
  const entropy = Math.log(total) - weighed / total
  return { entropy, support: Math.exp(entropy), largest: 1 / total }
}

// [key, weight] of the largest weights, which begin at key `first`.
function topKeys(weights, count, first = 0) {
  const best = []
  weights.forEach((weight, n) => {
    if (best.length === count && weight <= best[count - 1][1]) return
    let place = best.length
    while (place && best[place - 1][1] < weight) place--
    best.splice(place, 0, [first + n, weight])
    best.length = Math.min(best.length, count)
  })
  return best
}
