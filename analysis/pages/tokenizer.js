// The model's tokenizer: byte-level BPE, as `tokenizer.json` says it. Exports nothing.

// What White_Space is in Unicode; \s of JavaScript leaves out U+0085 and takes U+FEFF.
const SPACE = "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
const WORDS = new RegExp(
  `'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`, "gu")

// The sign that stands for each byte in the vocabulary: printable ones for themselves, the others from U+0100 on.
const SIGNS = (() => {
  const plain = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174
  let next = 256
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(plain(byte) ? byte : next++))
})()
const BYTES = new Map(SIGNS.map((sign, byte) => [sign, byte]))

// `vocabulary`: the tokens in the order of their ids; `merges`: pairs "a b", the first merged first; `special`: a token
// that is found in a text as it stands.
class Tokenizer {
  constructor({ vocabulary, merges, special }) {
    this.vocabulary = vocabulary
    this.ids = new Map(vocabulary.map((token, id) => [token, id]))
    this.ranks = new Map(merges.map((pair, rank) => [pair, rank]))
    this.special = special
    this.known = new Map()
  }

  // Ids of a text, at most `most` of them.
  encode(text, most = Infinity) {
    const ids = []
    for (const [n, part] of text.split(this.special).entries()) {
      if (n) ids.push(this.ids.get(this.special))
      for (const [word] of part.matchAll(WORDS)) {
        ids.push(...this.word(word))
        if (ids.length >= most) return ids.slice(0, most)
      }
    }
    return ids.slice(0, most)
  }

  word(word) {
    if (!this.known.has(word)) this.known.set(word, this.merged(word).map((part) => this.ids.get(part)))
    return this.known.get(word)
  }

  merged(word) {
    const parts = [...new TextEncoder().encode(word)].map((byte) => SIGNS[byte])
    while (parts.length > 1) {
      let best = Infinity, at = -1
      for (let n = 0; n + 1 < parts.length; n++) {
        const rank = this.ranks.get(`${parts[n]} ${parts[n + 1]}`) ?? Infinity
        if (rank < best) [best, at] = [rank, n]
      }
      if (at < 0) break
      parts.splice(at, 2, parts[at] + parts[at + 1])
    }
    return parts
  }

  // What each token writes; a character of several tokens is written by the last of them.
  pieces(ids) {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true })
    return ids.map((id) => {
      const token = this.vocabulary[id]
      if (token === this.special) return token
      return decoder.decode(Uint8Array.from([...token].map((sign) => BYTES.get(sign))), { stream: true })
    })
  }
}
