// What queries and keys say about a text, at any temperature and with fewer keys. Exports nothing; `attention.js` stands
// before it. A `read` holds { length, distance, heads, queries, keys }: `heads` are { name, size, q, k, scaling, cap,
// window }, q and k where the head's queries and keys [length, size] begin.

// Links that are kept of a token on either side.
const LINKS = 4

// Keys that every query keeps so that all of them together read at least `share` of the pairs of `length` tokens.
function keysFor(share, length) {
  let keys = 2
  while (keys < length && (keys * (keys + 1)) / 2 + keys * (length - keys) < (share * length * (length + 1)) / 2) keys++
  return keys
}

// Attention of a query of a head over its `count` best keys (null: all), those that tie with the last one among them:
// the first key that it sees, weights, the lowest score that is kept and the logarithm of the sum of the weights.
function rowOf(read, head, query, t, count) {
  const first = firstKey(query, head.window), { size } = head
  const row = scores(read.queries, head.q + query * size, read.keys, head.k, size, head.scaling, first, query)
  const least = count && count < row.length ? row.slice().sort()[row.length - count] : -Infinity
  let most = -Infinity, total = 0
  for (let n = 0; n < row.length; n++) if (row[n] > most) most = row[n]
  most = capped(most, t, head.cap)
  for (let n = 0; n < row.length; n++) total += row[n] = row[n] < least ? 0 : Math.exp(capped(row[n], t, head.cap) - most)
  for (let n = 0; n < row.length; n++) row[n] /= total
  return { first, weights: row, least, sum: most + Math.log(total) }
}

// All rows of the `chosen` heads (places in `read.heads`), at temperature `t`; links among the `count` best keys.
// received, expected [T]: far attention that a token draws, summed over heads, and by chance. far, entropy [chosen]: means
// over queries. kept [counts, T], held [counts, chosen]: the part of `received`, and of all attention, among the best
// `counts` keys (the most first). links: the LINKS strongest of each token both ways, each as its strongest head gives it.
function summary(read, chosen, t, counts, count) {
  const { length, distance } = read, few = counts.length
  const received = new Float64Array(length), rises = new Float64Array(length + 1), kept = new Float64Array(few * length)
  const far = new Float64Array(chosen.length), entropy = new Float64Array(chosen.length), held = new Float64Array(few * chosen.length)
  const pairs = new Float32Array(length * length), givers = new Uint16Array(length * length)
  chosen.forEach((place, n) => {
    const head = read.heads[place]
    for (let query = 0; query < length; query++) {
      const { first, weights } = rowOf(read, head, query, t, null)
      const ranked = weights.slice().sort(), all = weights.length
      const least = counts.map((keys) => (keys < all ? ranked[all - keys] : 0)), bar = count && count < all ? ranked[all - count] : 0
      // Of each step what lies among its keys but not among those of the next one, which keeps fewer.
      const among = new Float64Array(few), from = Math.max(1, first), to = query - distance
      let sparse = 0, sum = 0
      for (let i = 0; i < all; i++) {
        const weight = weights[i], key = first + i
        if (weight > 0) entropy[n] -= (weight * Math.log(weight)) / length
        let step = few - 1
        while (step >= 0 && weight < least[step]) step--
        if (step >= 0) among[step] += weight
        if (weight >= bar) sum += weight
        if (key < from || key > to) continue
        received[key] += weight
        sparse += weight
        if (step >= 0) kept[step * length + key] += weight
      }
      for (let step = few - 1, kin = 0; step >= 0; step--) held[step * chosen.length + n] += (kin += among[step]) / length
      for (let key = from; key <= to; key++) {
        const weight = weights[key - first] / sum, at = query * length + key
        if (weights[key - first] < bar || weight <= pairs[at]) continue
        pairs[at] = weight
        givers[at] = place
      }
      if (to < from) continue
      far[n] += sparse / length
      rises[from] += sparse / (to - from + 1)
      rises[to + 1] -= sparse / (to - from + 1)
    }
  })
  for (let step = few - 2; step >= 0; step--) for (let key = 0; key < length; key++) kept[step * length + key] += kept[(step + 1) * length + key]
  for (let key = 1; key < length; key++) rises[key] += rises[key - 1]
  return { received, expected: rises.subarray(0, length), far, entropy, kept, held, links: linksIn(pairs, givers, length) }
}

// place Int32, head Uint16, share Float32 [2, T, LINKS]: what each token reads, then who reads it; place -1 for none.
function linksIn(pairs, givers, length) {
  const links = { place: new Int32Array(2 * length * LINKS).fill(-1), head: new Uint16Array(2 * length * LINKS), share: new Float32Array(2 * length * LINKS) }
  for (let query = 0; query < length; query++) {
    for (let key = 0; key < query; key++) {
      const at = query * length + key
      if (!pairs[at]) continue
      enter(links, query, key, givers[at], pairs[at])
      enter(links, length + key, query, givers[at], pairs[at])
    }
  }
  return links
}

function enter(links, token, place, head, share) {
  const from = token * LINKS
  let at = from + LINKS
  while (at > from && share > links.share[at - 1]) at--
  if (at === from + LINKS) return
  for (const [name, value] of [["place", place], ["head", head], ["share", share]]) {
    links[name].copyWithin(at + 1, at, from + LINKS - 1)
    links[name][at] = value
  }
}

// One summary of those of parts of the heads; `parts` are { chosen, found }.
function merged(read, parts, counts) {
  const { length, heads } = read, all = parts[0].found
  const whole = { received: new Float64Array(length), expected: new Float64Array(length), kept: new Float64Array(counts * length) }
  const by = { far: new Float64Array(heads.length), entropy: new Float64Array(heads.length), held: new Float64Array(counts * heads.length) }
  const links = { place: all.links.place.slice(), head: all.links.head.slice(), share: all.links.share.slice() }
  for (const { chosen, found } of parts) {
    for (const name in whole) for (let n = 0; n < whole[name].length; n++) whole[name][n] += found[name][n]
    chosen.forEach((place, n) => {
      by.far[place] = found.far[n]
      by.entropy[place] = found.entropy[n]
      for (let step = 0; step < counts; step++) by.held[step * heads.length + place] = found.held[step * chosen.length + n]
    })
    if (found !== all) for (let at = 0; at < found.links.place.length; at++) anew(links, found.links, at)
  }
  return { ...whole, ...by, links }
}

// A link of another part: the same pair may have a stronger head there.
function anew(links, found, at) {
  if (found.place[at] < 0) return
  const from = at - (at % LINKS)
  for (let n = from; n < from + LINKS; n++) {
    if (links.place[n] !== found.place[at]) continue
    if (links.share[n] >= found.share[at]) return
    links.place.copyWithin(n, n + 1, from + LINKS)
    links.head.copyWithin(n, n + 1, from + LINKS)
    links.share.copyWithin(n, n + 1, from + LINKS)
    links.share[from + LINKS - 1] = 0
    links.place[from + LINKS - 1] = -1
    break
  }
  enter(links, from / LINKS, found.place[at], found.head[at], found.share[at])
}
