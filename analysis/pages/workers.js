// The workers of a page: their script stands in the page as text, and they share what is asked. Exports nothing.

class Workers {
  constructor(count) {
    const script = document.getElementById("worker").textContent
    const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }))
    this.waiting = new Map()
    this.asked = 0
    this.all = Array.from({ length: count }, () => {
      const worker = new Worker(address)
      worker.onmessage = ({ data: { id, answer, error } }) => {
        const { done, failed } = this.waiting.get(id)
        this.waiting.delete(id)
        if (error) failed(new Error(error))
        else done(answer)
      }
      return worker
    })
    for (let n = 0; n + 1 < count; n++) {
      const { port1, port2 } = new MessageChannel()
      this.tell(n, { act: "port", port: port1 }, [port1])
      this.tell(n + 1, { act: "port", port: port2 }, [port2])
    }
  }

  tell(n, message, moved = []) {
    this.all[n].postMessage(message, moved)
  }

  ask(n, message) {
    const id = this.asked++
    return new Promise((done, failed) => {
      this.waiting.set(id, { done, failed })
      this.tell(n, { ...message, id })
    })
  }

  each(message) {
    return Promise.all(this.all.map((_, n) => this.ask(n, message)))
  }

  // The summary of all heads of a read that all workers hold, each of them a part of the heads; null where they hold
  // another by now.
  async summary(read, t, counts, count) {
    const parts = this.all.map((_, n) => read.heads.map((_, place) => place).filter((place) => place % this.all.length === n))
    const asked = { act: "summary", text: read.text, t, counts, count }
    const found = await Promise.all(parts.map((chosen, n) => this.ask(n, { ...asked, chosen })))
    return found.some((part) => part.stopped) ? null : merged(read, found, counts.length)
  }
}

// Two share the work; a third would take from the page itself.
const workers = () => new Workers(Math.min(2, navigator.hardwareConcurrency || 1))

const packedIn = (name) => document.getElementById(name).textContent
