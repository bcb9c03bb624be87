// What would be printed; the browser's dialog cannot be tested.
() => {
  window.printed = []
  const own = Object.getOwnPropertyDescriptor(HTMLIFrameElement.prototype, "contentWindow")
  Object.defineProperty(HTMLIFrameElement.prototype, "contentWindow", { get() {
    const there = own.get.call(this), sheet = this.contentDocument
    if (there) there.print = () => window.printed.push(sheet.documentElement.outerHTML)
    return there
  } })
}
