// Draw a figure of the live page: only the traces that fit the choices beside it.
function live(figure) {
  const texts = [...figure.querySelectorAll("[type='application/json']")].map(part => part.textContent)
  const [{data, layout: options}, {changes, row, links}] = texts.map(text => JSON.parse(text))
  // What all figures and their axes have, in greys that show on white and on black.
  const [clear, faint, grey] = [0, 0.3, 0.9].map(strength => `rgba(128, 128, 128, ${strength})`)
  const layout = {
    margin: {l: 60, r: 16, t: 16, b: 60}, paper_bgcolor: clear, plot_bgcolor: clear, height: 600, hoverlabel: {align: "left"},
    legend: {orientation: "h", xref: "container", yref: "container", x: 0, y: 0, entrywidth: 100, font: {size: 10}},
    ...options,
  }
  for (const name of ["xaxis", "yaxis"].filter(name => name in options))
    layout[name] = {title: {text: ""}, gridcolor: faint, zerolinecolor: grey, automargin: true, ...options[name]}
  const [status, plot, more] = [".shown", ".plot", ".more"].map(name => figure.querySelector(name))
  const lists = [...figure.querySelectorAll("select")]

  function link(page) {
    const anchor = document.createElement("a")
    return Object.assign(anchor, {href: links[page], textContent: page})
  }

  function set(look, place, value) {
    const keys = place.split("."), last = keys.pop()
    keys.reduce((part, key) => part[key] ??= {}, look)[last] = value
  }

  function draw() {
    const chosen = lists.map(list => [list.name, [...list.selectedOptions].map(option => option.value)])
    const traces = data.filter(({meta}) => chosen.every(([name, values]) => !(name in meta) || values.includes(meta[name])))
    const rows = traces.reduce((sum, {meta}) => sum + meta.rows, 0), look = structuredClone(layout)
    for (const value of chosen.flatMap(([, values]) => values))
      for (const [place, now] of Object.entries(changes[value] ?? {})) set(look, place, now)
    const ends = traces.flatMap(({meta}) => meta.ends ?? []), low = Math.min(...ends), high = Math.max(...ends)
    if (ends.length) set(look, "xaxis.range", [low - 0.05 * (high - low), high + 0.05 * (high - low)])
    if (row) {
      const title = {xref: "paper", x: 0, xanchor: "left", yshift: 18, align: "left", showarrow: false, font: {size: 11}}
      const names = traces.flatMap(({y, meta}) => meta.rows ? y : [])
      Object.assign(look, {height: 80 + row * rows, annotations: names.map(name => ({...title, y: name, text: name}))})
      set(look, "yaxis.range", [rows - 0.5, -1])
    }
    set(look, "font.color", getComputedStyle(figure).color)
    Plotly.react(plot, rows ? traces : [], look, {responsive: true, displaylogo: false})
    status.textContent = rows ? `${rows} shown` : "Nothing has all of these choices."
    const pages = [...new Set(traces.map(({meta}) => meta.page))]
    more.replaceChildren("More: ", ...pages.flatMap(page => [link(page), " "]))
  }

  // A click opens the page of a point. On a touch screen a tap shows its text and a link.
  function open(event) {
    const [{data: {meta}, hovertext}] = event.points
    if (!hovertext) return
    status.replaceChildren(hovertext.replace(/<br>/g, "; ").replace(/<[^>]*>/g, ""), " ", link(meta.page))
    if (matchMedia("(hover: hover)").matches) window.open(links[meta.page])
  }

  lists.forEach(list => list.addEventListener("change", draw))
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw)
  draw()
  plot.on("plotly_click", open)
}
