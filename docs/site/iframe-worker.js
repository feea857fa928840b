// The search runs in a worker, which browsers refuse to pages that are opened as files: there a hidden frame stands in for it.
if (location.protocol === "file:") {
  class FrameAsWorker extends EventTarget {
    constructor(script) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => this.load(source)), Promise.resolve())
      this.load(script).then(() => {
        for (const data of this.waiting) this.hand(data)
        this.waiting = null
      })
    }
    load(source) {
      return new Promise((done, failed) => {
        const element = this.frame.contentDocument.createElement("script")
        element.src = new URL(source, document.baseURI).href
        element.onload = done
        element.onerror = () => failed(new Error(`cannot load ${source}`))
        this.frame.contentDocument.body.append(element)
      })
    }
    hand(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.hand(data)
    }
    terminate() {
      this.frame.remove()
    }
  }
  window.IFrameWorker = window.Worker = FrameAsWorker
}
