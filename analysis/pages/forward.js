// The forward pass of a Llama-like model on typed arrays: float32 numbers, sums in float64. Exports nothing.
// T tokens, D size of a head, H query heads, G key-value heads.

// Rows that meet the keys at once, and rows of logits.
const BLOCK = 32

// y[n, out] = x[n, inside] w[out, inside]^T, with the distance between rows of each. Sixteen sums at a time stay in
// registers, so that each number that is loaded is used four times.
function product(x, xs, n, inside, w, ws, out, y, ys) {
  const rows = n - (n % 4), columns = out - (out % 4)
  for (let i = 0; i < rows; i += 4) {
    const x0 = i * xs, x1 = x0 + xs, x2 = x1 + xs, x3 = x2 + xs
    for (let j = 0; j < columns; j += 4) {
      const w0 = j * ws, w1 = w0 + ws, w2 = w1 + ws, w3 = w2 + ws
      let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0
      let s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0
      for (let k = 0; k < inside; k++) {
        const a0 = x[x0 + k], a1 = x[x1 + k], a2 = x[x2 + k], a3 = x[x3 + k]
        const b0 = w[w0 + k], b1 = w[w1 + k], b2 = w[w2 + k], b3 = w[w3 + k]
        s00 += a0 * b0; s10 += a1 * b0; s20 += a2 * b0; s30 += a3 * b0
        s01 += a0 * b1; s11 += a1 * b1; s21 += a2 * b1; s31 += a3 * b1
        s02 += a0 * b2; s12 += a1 * b2; s22 += a2 * b2; s32 += a3 * b2
        s03 += a0 * b3; s13 += a1 * b3; s23 += a2 * b3; s33 += a3 * b3
      }
      let at = i * ys + j
      y[at] = s00; y[at + 1] = s01; y[at + 2] = s02; y[at + 3] = s03
      at += ys
      y[at] = s10; y[at + 1] = s11; y[at + 2] = s12; y[at + 3] = s13
      at += ys
      y[at] = s20; y[at + 1] = s21; y[at + 2] = s22; y[at + 3] = s23
      at += ys
      y[at] = s30; y[at + 1] = s31; y[at + 2] = s32; y[at + 3] = s33
    }
    singly(x, xs, i, i + 4, inside, w, ws, columns, out, y, ys)
  }
  singly(x, xs, rows, n, inside, w, ws, 0, out, y, ys)
}

// What is left where a count is no multiple of four.
function singly(x, xs, first, last, inside, w, ws, from, to, y, ys) {
  for (let i = first; i < last; i++) {
    for (let j = from; j < to; j++) {
      let sum = 0
      for (let k = 0; k < inside; k++) sum += x[i * xs + k] * w[j * ws + k]
      y[i * ys + j] = sum
    }
  }
}

// float32 weights by name from bfloat16 numbers of which first all upper bytes stand, then all lower ones.
function weights(bytes, manifest) {
  const count = bytes.length / 2, words = new Uint32Array(count)
  for (let n = 0; n < count; n++) words[n] = ((bytes[n] << 8) | bytes[count + n]) << 16
  const numbers = new Float32Array(words.buffer)
  return Object.fromEntries(manifest.map(([name, first, size]) => [name, numbers.subarray(first, first + size)]))
}

function normed(x, gain, eps) {
  const width = gain.length, y = new Float32Array(x.length)
  for (let from = 0; from < x.length; from += width) {
    let squares = 0
    for (let n = 0; n < width; n++) squares += x[from + n] ** 2
    const scale = 1 / Math.sqrt(squares / width + eps)
    for (let n = 0; n < width; n++) y[from + n] = x[from + n] * scale * gain[n]
  }
  return y
}

// Rows of x [n, inside] through a weight [out, inside].
function through(x, w, inside) {
  const n = x.length / inside, out = w.length / inside, y = new Float32Array(n * out)
  product(x, inside, n, inside, w, inside, out, y, out)
  return y
}

// Rotary positions, half-split: heads of `size` numbers of the tokens from `first` on.
function rotate(x, heads, size, first, theta) {
  const half = size / 2, n = x.length / (heads * size)
  for (let f = 0; f < half; f++) {
    const pace = theta ** (-f / half)
    for (let i = 0; i < n; i++) {
      const cos = Math.cos((first + i) * pace), sin = Math.sin((first + i) * pace)
      for (let at = i * heads * size + f, h = 0; h < heads; h++, at += size) {
        const a = x[at], b = x[at + half]
        x[at] = a * cos - b * sin
        x[at + half] = b * cos + a * sin
      }
    }
  }
}

// Softmax of a row of scores in place, over its `keys` largest where that is a number; those that tie with the last stay.
function attended(row, keys) {
  const least = keys && keys < row.length ? row.slice().sort()[row.length - keys] : -Infinity
  let most = -Infinity, total = 0
  for (let n = 0; n < row.length; n++) if (row[n] > most) most = row[n]
  for (let n = 0; n < row.length; n++) total += row[n] = row[n] < least ? 0 : Math.exp(row[n] - most)
  for (let n = 0; n < row.length; n++) row[n] /= total
}

// Tokens first..last of a text through the model. `before(layer)` resolves to the keys and values of the tokens in front
// of `first` and `after` hears those of these: so several workers share a text. `keys`: how many each query of each head
// keeps, null for all. Resolves to null once `stopped()` is true, else to the loss of each token but the last, queries
// [L, n, H, D], keys [L, n, G, D] and, where they are `wanted`, logits [n, vocabulary].
async function forward(model, ids, { first = 0, last = ids.length, keys = null, wanted = false, before, after, stopped }) {
  const { tensors, config } = model, { width, heads, groups, size, layers, eps, theta } = config
  const n = last - first, embedding = tensors["embed_tokens"]
  let x = new Float32Array(n * width)
  for (let i = 0; i < n; i++) x.set(embedding.subarray(ids[first + i] * width, (ids[first + i] + 1) * width), i * width)
  const queries = [], kept = []
  for (let layer = 0; layer < layers; layer++) {
    if (await stopped()) return null
    const of = (name) => tensors[`${layer}.${name}`]
    const h = normed(x, of("input_layernorm"), eps)
    const q = through(h, of("q_proj"), width), k = through(h, of("k_proj"), width), v = through(h, of("v_proj"), width)
    rotate(q, heads, size, first, theta)
    rotate(k, groups, size, first, theta)
    after?.(layer, k, v)
    const earlier = first ? await before(layer) : null
    const out = attention(q, joined(earlier?.k, k), joined(earlier?.v, v), first, config, keys)
    add(x, through(out, of("o_proj"), heads * size))
    const m = normed(x, of("post_attention_layernorm"), eps), gate = through(m, of("gate_proj"), width)
    const up = through(m, of("up_proj"), width)
    for (let j = 0; j < gate.length; j++) gate[j] *= up[j] / (1 + Math.exp(-gate[j]))
    add(x, through(gate, of("down_proj"), up.length / n))
    queries.push(q)
    kept.push(k)
  }
  x = normed(x, tensors["norm"], eps)
  return { queries, keys: kept, ...scored(x, embedding, ids, first, width, wanted) }
}

const add = (x, y) => { for (let n = 0; n < x.length; n++) x[n] += y[n] }

function joined(earlier, now) {
  if (!earlier) return now
  const all = new Float32Array(earlier.length + now.length)
  all.set(earlier)
  all.set(now, earlier.length)
  return all
}

// Out [n, H, D] of queries [n, H, D], the first of which is token `first`, over keys and values [T, G, D].
function attention(q, k, v, first, { heads, groups, size }, keys) {
  const n = q.length / (heads * size), length = first + n, out = new Float32Array(q.length)
  const turned = new Float32Array(size * length), scored = new Float32Array(BLOCK * length), scale = size ** -0.5
  for (let head = 0; head < heads; head++) {
    const group = Math.floor((head * groups) / heads), from = group * size
    for (let t = 0; t < length; t++) for (let d = 0; d < size; d++) turned[d * length + t] = v[t * groups * size + from + d]
    for (let start = 0; start < n; start += BLOCK) {
      const rows = Math.min(BLOCK, n - start), seen = first + start + rows
      const x = q.subarray(start * heads * size + head * size)
      product(x, heads * size, rows, size, k.subarray(from), groups * size, seen, scored, length)
      for (let i = 0; i < rows; i++) {
        const row = scored.subarray(i * length, i * length + first + start + i + 1)
        for (let t = 0; t < row.length; t++) row[t] *= scale
        attended(row, keys)
        scored.fill(0, i * length + row.length, i * length + seen)
      }
      product(scored, length, rows, seen, turned, length, size, out.subarray(start * heads * size + head * size), heads * size)
    }
  }
  return out
}

// Nats of every next token, and the logits where they are wanted.
function scored(x, embedding, ids, first, width, wanted) {
  const n = x.length / width, words = embedding.length / width
  const losses = new Float32Array(Math.min(n, ids.length - 1 - first)), logits = wanted ? new Float32Array(n * words) : null
  const block = new Float32Array(BLOCK * words)
  for (let start = 0; start < n; start += BLOCK) {
    const rows = Math.min(BLOCK, n - start)
    product(x.subarray(start * width), width, rows, width, embedding, width, words, block, words)
    logits?.set(block.subarray(0, rows * words), start * words)
    for (let i = 0; i < rows && start + i < losses.length; i++) {
      const row = block.subarray(i * words, (i + 1) * words)
      let most = -Infinity, total = 0
      for (let w = 0; w < words; w++) if (row[w] > most) most = row[w]
      for (let w = 0; w < words; w++) total += Math.exp(row[w] - most)
      losses[start + i] = most + Math.log(total) - row[ids[first + start + i + 1]]
    }
  }
  return { losses, logits }
}
