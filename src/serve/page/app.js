// The page: views by the part of the address after `#`, each made of what the API returns. Text of documents, models and
// users becomes text nodes; HTML comes only from this server, which escapes it.

const view = document.getElementById("view");
const connection = document.getElementById("connection");

// ---- elements and requests

function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
  return element;
}

class Failure extends Error {
  constructor(message, hint, status) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

async function request(path, { method = "GET", body, signal, as = "json" } = {}) {
  let response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method, signal,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    connection.textContent = "no connection to dr";
    throw new Failure("The server does not answer.", "Is `dr serve` still running?", 0);
  }
  connection.textContent = "";
  if (!response.ok) {
    const text = await response.text();
    let told = { error: text.trim() || response.statusText };
    try { told = JSON.parse(text); } catch { /* not JSON: the text is the message */ }
    throw new Failure(told.error, told.hint, response.status);
  }
  if (response.status === 204) return undefined;
  return as === "text" ? response.text() : response.json();
}

function errorBox(error) {
  return h("div", { class: "error", role: "alert" }, h("p", {}, h("strong", {}, error.message)),
    error.hint ? h("p", { class: "hint" }, error.hint) : null);
}

/** Runs what a button does, with the button disabled and an error shown behind it. */
function action(button, work) {
  button.addEventListener("click", async () => {
    const old = button.parentElement.parentElement.querySelector(".error");
    if (old) old.remove();
    button.disabled = true;
    try { await work(); } catch (error) {
      if (error.name !== "AbortError") button.parentElement.after(errorBox(error));
    } finally { button.disabled = false; }
  });
  return button;
}

const dollars = (value) => value === null || value === undefined ? "cost unknown" : `$${value === 0 ? 0 : value.toFixed(value < 1 ? 4 : 2)}`;
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const thousands = (value) => Math.round(value).toLocaleString("en");
function time(seconds) {
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// ---- the reader: a passage or a quote in its document

const reader = document.getElementById("reader"), back = document.getElementById("reader-back");
// Documents that were opened one from another, the one that is shown last.
let trail = [];
document.getElementById("reader-close").addEventListener("click", () => reader.close());
reader.addEventListener("click", (event) => { if (event.target === reader) reader.close(); });
back.addEventListener("click", () => { trail.pop(); open(trail.pop()); });

const passage = (id) => `/passages?extent=document&id=${encodeURIComponent(id)}`;

async function open(path) {
  const text = document.getElementById("reader-text"), title = document.getElementById("reader-title");
  const note = document.getElementById("reader-note"), links = document.getElementById("reader-links");
  if (!reader.open) trail = [];
  trail.push(path);
  const mine = trail;
  const isOver = () => mine !== trail || trail.at(-1) !== path;
  back.hidden = trail.length < 2;
  title.textContent = "Loading…";
  document.getElementById("reader-place").replaceChildren();
  note.hidden = true;
  text.replaceChildren();
  links.replaceChildren();
  if (!reader.open) reader.showModal();
  try {
    const found = await request(path);
    if (isOver()) return;
    title.textContent = found.title || found.place;
    const link = found.url && /^https?:\/\//.test(found.url)
      ? h("a", { href: found.url, rel: "noopener noreferrer nofollow", target: "_blank" }, found.url) : found.place;
    document.getElementById("reader-place").append(link);
    note.hidden = !found.note;
    note.textContent = found.note ?? "";
    text.innerHTML = found.html;
    text.querySelectorAll("a").forEach((a) => { a.target = "_blank"; a.rel = "noopener noreferrer nofollow"; });
    text.focus();
    text.querySelector("mark")?.scrollIntoView({ block: "center" });
    // The text is shown without them if they cannot be read.
    const linked = found.document ? await request(`/links?id=${encodeURIComponent(found.document)}`).catch(() => null) : null;
    if (linked && !isOver()) links.replaceChildren(...linkedNotes(linked));
  } catch (error) {
    if (isOver()) return;
    title.textContent = "Not found";
    text.replaceChildren(errorBox(error));
  }
}

/** What a document links to and what links to it; each note opens at the heading or the line of the link. */
function linkedNotes({ collection, links, backlinks, more_links, more_backlinks }) {
  const note = ({ path, title }, line) => h("li", {}, h("button", { type: "button",
    onclick: () => open(passage(`${collection}/${path}${line ? `:${line}` : ""}`)) }, title || path), " ", h("span", { class: "at" }, line ? `${path}:${line}` : path));
  const once = new Map(links.filter((link) => link.note).map((link) => [`${link.note.path}:${link.heading_line}`, link]));
  const broken = links.filter((link) => link.state === "missing");
  const more = (count) => count ? h("li", { class: "quiet" }, `and ${counted(count, "more link")}`) : null;
  const list = (head, items) => items.some(Boolean) ? [h("h3", {}, head), h("ul", {}, items)] : [];
  const lists = [
    list("Links to", [...[...once.values()].map((link) => note(link.note, link.heading_line)), more(more_links)]),
    list("Linked from", [...backlinks.map((link) => note(link, link.line)), more(more_backlinks)]),
    list("Broken links", broken.map((link) => h("li", {}, h("code", {}, link.written), h("span", { class: "at" }, ` in line ${link.line}`)))),
  ].flat();
  const counts = [once.size && `links to ${counted(once.size, "note")}`, backlinks.length && `linked from ${counted(backlinks.length, "place")}`,
    broken.length && counted(broken.length, "broken link")];
  return lists.length ? [h("details", {}, h("summary", {}, counts.filter(Boolean).join(", ")), lists)] : [];
}

/** Lets the numbers of a report open their quotes. They are looked up inside of it: two reports have the same ids. */
function citations(report, run) {
  report.querySelectorAll(".cite a").forEach((a) => a.addEventListener("click", (event) => {
    event.preventDefault();
    const quote = report.querySelector(`#quote-${CSS.escape(a.getAttribute("href").replace("#source-", ""))}`);
    if (quote) open(`/runs/${run}/quotes/${quote.dataset.quote}`);
  }));
}

// ---- ask

const SOURCES = [["", "as planned"], ["internal", "knowledge base"], ["web", "web"], ["mixed", "both"]];
const MODES = [["auto", "by the question"], ["quick", "quick"], ["iterative", "iterative"], ["deep", "deep"]];

function select(id, options, chosen) {
  return h("select", { id }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

function field(text, input, hint) {
  return h("div", {}, h("label", { for: input.id }, text), input, hint ? h("p", { class: "hint" }, hint) : null);
}

const number = (id, step, placeholder) => h("input", { id, type: "number", min: "0", step, inputmode: "decimal", placeholder });

async function askView(follow) {
  const [about, collections, { runs }] = await Promise.all([request("/about"), request("/collections").catch(() => []),
    request("/runs").catch(() => ({ runs: [] }))]);
  const question = h("textarea", { id: "question", required: true, placeholder: "What do you want to know?" });
  const chosen = collections.filter((one) => one.served).map((one) => [one, h("input", { type: "checkbox", value: one.name })]);
  const source = select("source", SOURCES, "");
  const mode = select("mode", MODES, "auto");
  const { limits } = about;
  const cost = number("cost", "any", limits.cost_usd === undefined ? "no limit" : String(limits.cost_usd));
  const tokens = number("tokens", "1", limits.tokens === undefined ? "no limit" : String(limits.tokens));
  const minutes = number("minutes", "any", limits.seconds === undefined ? "no limit" : String(limits.seconds / 60));
  const offline = h("input", { type: "checkbox", id: "offline" });
  const fresh = h("input", { type: "checkbox", id: "fresh" });
  const plan = h("div", {});
  const form = () => {
    const value = (input, factor = 1) => input.value === "" ? undefined : Number(input.value) * factor;
    const seconds = value(minutes, 60);
    return {
      question: question.value, mode: mode.value, source: source.value || undefined,
      collections: chosen.filter(([, box]) => box.checked).map(([one]) => one.name),
      offline: offline.checked, fresh: fresh.checked, follow,
      max_cost: value(cost), max_tokens: value(tokens), max_seconds: seconds && Math.round(seconds),
    };
  };
  const start = async (saved) => {
    const { run_id } = await request("/runs", { method: "POST", body: { question: form(), plan: saved } });
    location.hash = `#/runs/${run_id}`;
  };
  const ask = action(h("button", { type: "button", class: "first", id: "ask" }, "Ask"), () => start());
  const planFirst = action(h("button", { type: "button", id: "plan" }, "Plan first"), async () => {
    plan.replaceChildren(h("p", { class: "quiet", role: "status" }, "Planning…"));
    try {
      plan.replaceChildren(planCard(await request("/plans", { method: "POST", body: { question: form() } }), start));
    } catch (error) { plan.replaceChildren(); throw error; }
  });
  question.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask.click();
  });
  show("Ask",
    h("h1", {}, follow ? "Ask a follow-up question" : "Ask"),
    follow ? h("p", { class: "quiet" }, "Follows run ", h("a", { href: `#/runs/${follow}` }, follow), ".") : null,
    collections.length === 0 ? h("p", { class: "note" }, "Nothing is indexed here yet. Run ", h("code", {}, "dr index FOLDER"), ".") : null,
    h("div", {}, h("label", { for: "question" }, "Question"), question),
    about.has_model ? null
      : h("p", { class: "hint" }, "No language model is set up: the answer is made of verbatim passages and costs nothing."),
    h("details", {}, h("summary", {}, "Where and how far to look"),
      chosen.length > 1 ? h("fieldset", {}, h("legend", {}, "Collections"), h("div", { class: "checks" },
        chosen.map(([one, box]) => h("label", {}, box, ` ${one.name} (${thousands(one.documents)})`)))) : null,
      h("div", { class: "fields" }, field("Source", source), field("Depth", mode)),
      h("div", { class: "fields" }, field("Most dollars", cost), field("Most tokens", tokens), field("Most minutes", minutes)),
      h("p", { class: "hint" }, "Limits can be lower than those of the settings and not higher."),
      h("div", { class: "checks" }, h("label", {}, offline, " offline: no model, no web"), h("label", {}, fresh, " ask again, even if it was answered before"))),
    h("div", {}, h("div", { class: "row" }, ask, about.has_model ? planFirst : null,
      about.has_model ? h("span", { class: "hint" }, "A plan takes two calls of the model and shows what the rest would take.") : null)),
    plan,
    follow || runs.length === 0 ? null : h("section", {}, h("h2", {}, "Recent"), h("ul", { class: "recent" }, runs.slice(0, 6).map((run) =>
      h("li", {}, h("a", { href: `#/runs/${run.id}` }, run.question), " ", h("span", { class: "at" }, `${run.state.replaceAll("_", " ")}, ${run.started}`))))));
  question.focus();
}

/** A plan that can be edited: sub-questions dropped, reworded, sent elsewhere. */
function planCard(planned, start) {
  const { plan, run_id } = planned;
  const original = JSON.stringify(plan);
  const rows = plan.new_nodes.map((node, index) => {
    const keep = h("input", { type: "checkbox", checked: true, "aria-label": `keep ${node.id}` });
    const words = h("textarea", { id: `node-${index}`, rows: "2", "aria-label": `sub-question ${node.id}` }, node.question);
    const where = select(`where-${index}`, SOURCES.slice(1), node.source_hint);
    where.setAttribute("aria-label", `source of ${node.id}`);
    return { node, keep, words, where };
  });
  const edited = () => {
    const kept = rows.filter((row) => row.keep.checked);
    const ids = new Set(kept.map((row) => row.node.id));
    return {
      ...plan,
      new_nodes: kept.map(({ node, words, where }) => ({
        ...node, question: words.value, source_hint: where.value,
        depends_on: (node.depends_on ?? []).filter((id) => ids.has(id)),
        parent: ids.has(node.parent) ? node.parent : plan.new_nodes.some((one) => one.id === node.parent) ? null : node.parent,
      })),
    };
  };
  const go = action(h("button", { type: "button", class: "first", id: "run-plan" }, "Run this plan"), async () => {
    const now = edited();
    if (JSON.stringify(now) === original) {
      await request(`/runs/${run_id}/resume`, { method: "POST", body: {} });
      location.hash = `#/runs/${run_id}`;
      return;
    }
    await start(now);
    await request(`/runs/${run_id}`, { method: "DELETE" }).catch(() => {});
  });
  const range = ([low, high], shown) => low === high ? shown(low) : `${shown(low)} to ${shown(high)}`;
  return h("section", { class: "card", "aria-label": "Plan" },
    h("h2", {}, "Plan"),
    h("p", {}, "The rest usually takes ", h("strong", { id: "estimate" },
      planned.cost_usd ? range(planned.cost_usd, dollars) : "a cost that is not known", ", ",
      range(planned.tokens, thousands), " tokens and ", range(planned.seconds, time)), ". Nothing of it has been spent."),
    h("ul", { class: "plan" }, rows.map(({ keep, words, where }) => h("li", {}, keep, words, where))),
    h("div", {}, h("div", { class: "row" }, go, h("a", { class: "button", href: `#/runs/${run_id}` }, "Keep it for later"))));
}

// ---- one run

const MARKS = { pending: "○", running: "◐", done: "●", failed: "✕", blocked: "–" };
const STATES = { running: "running", open: "stopped", ended: "ended", failed: "failed" };

async function runView(id) {
  const head = h("div", {}), meters = h("div", { class: "meters" }), tree = h("ul", { class: "tree" }), log = h("ol", { class: "log" });
  const answer = h("div", { class: "report" }), more = h("div", {}), problem = h("div", {});
  const now = h("p", { class: "doing", id: "doing", role: "status" }), doing = new Map(), opened = new Map();
  let run, seen = 0, stream, finished = "", timer, headed;
  const signal = leaving.signal;

  async function load() {
    const reply = await request(`/runs/${encodeURIComponent(id)}`, { signal });
    run = { ...reply };
    draw();
    return run;
  }
  function draw() {
    const { limits, usage } = run;
    document.title = `${run.question} – dr`;
    const state = STATES[run.state] ?? run.state;
    // Not drawn again without need: a button that has the focus would lose it.
    const heading = JSON.stringify([run.state, run.reason, run.round, finished !== ""]);
    if (heading !== headed) head.replaceChildren(
      h("h1", {}, run.question),
      h("p", {}, h("span", { class: `state ${run.state === "running" ? "running" : run.state === "ended" ? "done" : "failed"}`, id: "state" }, state),
        " ", run.reason ? h("span", { class: "quiet" }, run.reason.replaceAll("_", " ")) : null,
        run.state === "running" && run.round ? h("span", { class: "quiet" }, `round ${run.round}`) : null),
      buttons());
    headed = heading;
    const meter = (name, value, limit, shown) => h("div", {}, h("div", {}, `${name} `, h("span", { class: "quiet" },
      shown(value), limit === undefined ? "" : ` of ${shown(limit)}`)),
      h("progress", { max: String(limit ?? Math.max(value, 1)), value: String(Math.min(value, limit ?? value)), "aria-label": name }));
    meters.hidden = run.state === "ended" && run.calls === 0;
    meters.replaceChildren(
      meter("Cost", run.cost_usd ?? 0, limits.cost_usd, run.cost_usd === null ? () => "unknown" : dollars),
      meter("Tokens", run.tokens, limits.tokens, thousands),
      meter("Time", run.seconds, limits.seconds, time));
    tree.replaceChildren(...children(undefined));
    more.replaceChildren(usageTable(usage), egress());
  }
  function buttons() {
    const stop = h("button", { type: "button", id: "stop" }, "Stop");
    const resume = h("button", { type: "button", class: "first", id: "resume" }, "Resume");
    const raise = h("button", { type: "button", id: "raise" }, "Raise the limits and go on");
    const amount = h("input", { type: "number", min: "0", step: "any", value: "1", "aria-label": "dollars to add" });
    const post = (path, body = {}) => request(`/runs/${run.run_id}/${path}`, { method: "POST", body });
    action(stop, async () => { await post("cancel"); await load(); });
    action(resume, async () => { await post("resume"); await follow(); });
    action(raise, async () => {
      const dollars = Number(amount.value);
      await post("resume", { cost_usd: run.limits.cost_usd === undefined ? 0 : dollars, tokens: run.limits.tokens ?? 0, seconds: Math.round(run.limits.seconds ?? 0), rounds: 1 });
      await follow();
    });
    const format = ([name, text]) => [" ", h("a", { download: "", href: `/api/v1/runs/${run.run_id}/report?format=${name}` }, text)];
    const formats = [["markdown", "Markdown"], ["note", "note"], ["html", "HTML"], ["json", "JSON"]];
    const isOver = run.state !== "running", isLimited = isOver && run.reason?.endsWith("_exceeded");
    return h("div", {}, h("div", { class: "row" },
      run.state === "running" ? stop : null,
      (run.state === "open" || run.state === "failed") && !isLimited ? resume : null,
      isOver && run.round > 0 ? h("a", { class: "button", href: `#/ask/${run.run_id}` }, "Follow up") : null,
      isOver && finished ? h("span", { class: "quiet" }, "Save as", formats.map(format)) : null),
      isLimited ? h("div", { class: "row" }, raise, h("label", {}, "$ ", amount)) : null);
  }
  function children(parent) {
    return run.nodes.filter((node) => node.parent === parent).map((node) => {
      const found = run.findings.find((one) => one.node === node.id);
      const below = children(node.id);
      return h("li", {}, h("div", { class: "node-head" },
        h("span", { class: `mark ${node.status}`, title: node.status, role: "img", "aria-label": node.status }, MARKS[node.status] ?? "?"),
        h("div", { class: "node-text" }, h("code", {}, node.id), " ", node.question, " ",
          h("span", { class: "at" }, node.status, found?.source ? `, ${found.source}` : "",
            found ? `, confidence ${found.confidence.toFixed(2)}` : "", node.depends_on?.length ? `, after ${node.depends_on.join(", ")}` : ""),
          node.status === "running" && doing.has(node.id) ? h("p", { class: "doing" }, doing.get(node.id)) : null,
          found?.findings.length ? h("details", { open: opened.get(node.id) ?? run.state === "running",
            ontoggle: (event) => opened.set(node.id, event.target.open) }, h("summary", { class: "quiet" }, `${found.findings.length} found`),
            h("ul", { class: "found" }, found.findings.map((one) => h("li", {}, one.text, " ", one.quotes.map(cite))))) : null)),
        below.length ? h("ul", {}, below) : null);
    });
  }
  const cite = (quote) => h("button", { type: "button", title: "show the quote in its document", onclick: () => open(`/runs/${run.run_id}/quotes/${quote}`) }, quote);
  function egress() {
    if (!run.egress.length) return h("section", {}, h("h2", {}, "What left this machine"), h("p", { class: "quiet" }, "Nothing was sent to a search engine, a page or a job."));
    return h("section", {}, h("h2", {}, "What left this machine"), h("ul", {}, run.egress.map((one) => h("li", {},
      h("code", {}, one.node), ` ${one.kind} to ${one.target}: `, h("q", {}, one.text), one.withheld ? h("span", { class: "bad" }, ` withheld: ${one.withheld}`) : null))));
  }
  async function report() {
    if (run.state === "running" || run.round === 0) return;
    try {
      const html = await request(`/runs/${run.run_id}/report?format=fragment`, { as: "text", signal });
      answer.innerHTML = html;
      finished = html;
      citations(answer, run.run_id);
      answer.querySelectorAll("[data-quote]").forEach((quote) => quote.after(" ", h("button", { type: "button", class: "cite-button",
        onclick: () => open(`/runs/${run.run_id}/quotes/${quote.dataset.quote}`) }, "show in its document")));
      draw();
    } catch (error) {
      if (error.name !== "AbortError" && error.status !== 409) problem.replaceChildren(errorBox(error));
    }
  }
  function note(events) {
    for (const event of events) {
      if (event.number <= seen) continue;
      seen = event.number;
      log.append(h("li", {}, h("time", {}, new Date(event.at).toLocaleTimeString()), event.text));
    }
    log.scrollTop = log.scrollHeight;
  }
  // Several events come at once: the findings are read once for all of them.
  function soon() {
    timer ??= setTimeout(() => { timer = undefined; load().catch(() => {}); }, 150);
  }
  async function follow() {
    stream?.close();
    problem.replaceChildren();
    await load();
    stream = new EventSource(`/api/v1/runs/${run.run_id}/events?since=${seen}`);
    stream.addEventListener("open", () => { connection.textContent = ""; });
    stream.addEventListener("error", () => { connection.textContent = "connection lost, trying again"; });
    stream.addEventListener("doing", (event) => {
      const { text, node } = JSON.parse(event.data);
      if (node) doing.set(node, text); else now.textContent = text;
      draw();
    });
    stream.addEventListener("state", async (event) => {
      const { events, ...status } = JSON.parse(event.data);
      note(events);
      Object.assign(run, status);
      if (status.state === "running") return soon();
      now.textContent = "";
      stream.close();
      await load();
      await report();
    });
  }
  // A browser opens six connections to a server: tabs that are not looked at give theirs back.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stream?.close();
    else if (run?.state === "running") follow().catch((error) => problem.replaceChildren(errorBox(error)));
  }, { signal });
  signal.addEventListener("abort", () => { stream?.close(); clearTimeout(timer); });
  show("Run", head, now, problem, meters, answer,
    h("section", {}, h("h2", {}, "Research"), tree),
    h("details", {}, h("summary", {}, "Events"), log), more);
  head.append(h("p", { class: "quiet" }, "Loading…"));
  await follow();
}

function usageTable(usage) {
  const rows = [["role", usage.by_role], ["sub-question", usage.by_node]].flatMap(([kind, table]) =>
    Object.entries(table).map(([name, figures]) => [kind, name, figures]));
  const most = Math.max(1, ...rows.map(([, , figures]) => figures.input_tokens + figures.output_tokens));
  if (!rows.some(([, , figures]) => figures.calls)) return h("section", {}, h("h2", {}, "Usage"), h("p", { class: "quiet" }, "No model was called."));
  return h("section", {}, h("h2", {}, "Usage"), h("div", { class: "wide" }, h("table", { class: "costs chart" },
    h("thead", {}, h("tr", {}, ["For", "Tokens", "", "Calls", "Cost"].map((text) => h("th", {}, text)))),
    h("tbody", {}, rows.map(([, name, figures]) => {
      const tokens = figures.input_tokens + figures.output_tokens;
      return h("tr", {}, h("td", {}, name), h("td", {}, h("progress", { max: String(most), value: String(tokens), "aria-label": `tokens of ${name}` })),
        h("td", {}, thousands(tokens)), h("td", {}, String(figures.calls)), h("td", {}, dollars(figures.cost_usd)));
    })))));
}

// ---- search

async function searchView() {
  const collections = await request("/collections");
  const parameters = new URLSearchParams(location.hash.split("?")[1] ?? "");
  const text = (id, placeholder) => {
    const input = h("input", { id, placeholder });
    input.value = parameters.get(id) ?? "";
    return input;
  };
  // Empty until it is a whole day.
  const day = (id) => { const input = text(id); input.type = "date"; return input; };
  const q = text("q", "Words, an identifier, or a \"phrase\"");
  q.type = "search";
  const collection = select("collection", [["", "all"], ...collections.map((one) => [one.name, one.name])], parameters.get("collection") ?? "");
  const filters = { q, collection, path: text("path", "guide/**"), tag: text("tag", ""), since: day("since"), until: day("until") };
  const explain = h("input", { type: "checkbox", id: "explain" });
  const status = h("p", { class: "quiet", role: "status" }), hits = h("ol", { class: "hits" });
  let last, waiting;
  const find = async () => {
    last?.abort();
    const values = new URLSearchParams(Object.entries(filters).map(([name, input]) => [name, input.value.trim()]).filter(([, value]) => value));
    history.replaceState(null, "", `#/search${values.size ? `?${values}` : ""}`);
    if (!filters.q.value.trim()) { status.textContent = ""; hits.replaceChildren(); return; }
    last = new AbortController();
    try {
      const found = await request(`/search?${values}`, { signal: last.signal });
      status.textContent = found.hits.length === 0 ? "Nothing was found."
        : `${counted(found.hits.length, "passage")} in ${found.milliseconds.toFixed(0)} ms, ${found.mode}${found.support === "none" ? "; none seems to bear on it" : ""}.`;
      hits.replaceChildren(...found.notes.map((note) => h("li", { class: "quiet" }, note)), ...found.hits.map(hit));
    } catch (error) {
      if (error.name === "AbortError") return;
      status.textContent = "";
      hits.replaceChildren(h("li", {}, errorBox(error)));
    }
  };
  const hit = (one) => h("li", {},
    h("h3", {}, h("button", { type: "button", onclick: () => open(passage(one.id)) },
      [one.title, ...one.headings.filter((heading) => heading !== one.title)].join(" › "))),
    h("p", { class: "at" }, `${one.collection}/${one.path}:${one.line_start}-${one.line_end}`),
    one.about ? h("p", { class: "at" }, one.about) : null,
    h("p", {}, one.snippet.map((part) => part.is_match ? h("mark", {}, part.text) : part.text)),
    explain.checked ? h("p", { class: "at" }, `score ${one.score.toFixed(3)} · `,
      Object.entries(one.explain).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${typeof value === "number" ? +value.toFixed(3) : value}`).join(" · ")) : null);
  const later = () => { clearTimeout(waiting); waiting = setTimeout(find, 120); };
  Object.values(filters).forEach((input) => input.addEventListener("input", later));
  explain.addEventListener("change", find);
  leaving.signal.addEventListener("abort", () => { clearTimeout(waiting); last?.abort(); });
  show("Search", h("h1", {}, "Search"), h("div", {}, h("label", { for: "q" }, "Query"), q),
    h("details", { open: ["collection", "path", "tag", "since", "until"].some((name) => parameters.get(name)) }, h("summary", {}, "Filters"),
      h("div", { class: "fields" }, field("Collection", collection), field("Path", filters.path), field("Tag", filters.tag), field("Since", filters.since), field("Until", filters.until)),
      h("div", { class: "checks" }, h("label", {}, explain, " explain the order"))),
    status, hits);
  q.focus();
  await find();
}

// ---- runs

async function runsView() {
  const { runs, damage } = await request("/runs");
  const filter = h("input", { id: "filter", type: "search", placeholder: "words of a question, or a state" });
  const body = h("tbody", {}), chosen = new Set();
  const compare = h("button", { type: "button", id: "compare", disabled: true }, "Compare two runs");
  compare.addEventListener("click", () => { location.hash = `#/compare/${[...chosen].join("/")}`; });
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = runs.filter((run) => words.every((word) => `${run.question} ${run.state}`.toLowerCase().includes(word)));
    body.replaceChildren(...shown.map((run) => {
      const box = h("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": `compare ${run.id}` });
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(run.id); else chosen.delete(run.id);
        compare.disabled = chosen.size !== 2;
      });
      const remove = action(h("button", { type: "button", "aria-label": `delete ${run.id}` }, "Delete"), async () => {
        if (!confirm(`Delete the run “${run.question}”? Its report and its quotes are removed.`)) return;
        await request(`/runs/${run.id}`, { method: "DELETE" });
        runs.splice(runs.indexOf(run), 1);
        chosen.delete(run.id);
        draw();
      });
      return h("tr", {}, h("td", {}, box), h("td", {}, h("a", { href: `#/runs/${run.id}` }, run.question), run.problem ? h("p", { class: "bad" }, run.problem) : null),
        h("td", {}, run.state.replaceAll("_", " ")), h("td", {}, run.started), h("td", {}, time(run.seconds)), h("td", {}, dollars(run.cost_usd)), h("td", {}, h("div", { class: "row" }, run.nodes ? h("a", { href: `#/ask/${run.id}` }, "Follow up") : null, remove)));
    }));
    if (!shown.length) body.replaceChildren(h("tr", {}, h("td", { colspan: "7", class: "quiet" }, runs.length ? "No run matches." : "No run is stored yet: ask a question.")));
  };
  filter.addEventListener("input", draw);
  show("Runs", h("h1", {}, "Runs"), damage ? h("p", { class: "note" }, damage) : null,
    h("div", { class: "row" }, h("div", {}, h("label", { for: "filter" }, "Filter"), filter), compare),
    h("div", { class: "wide" }, h("table", { class: "runs" },
      h("thead", {}, h("tr", {}, ["", "Question", "State", "Started (UTC)", "Time", "Cost", ""].map((text) => h("th", {}, text)))), body)));
  draw();
}

async function compareView(first, second) {
  const sides = await Promise.all([first, second].map(async (id) => {
    const [run, html] = await Promise.all([request(`/runs/${id}`), request(`/runs/${id}/report?format=fragment`, { as: "text" }).catch((error) => error)]);
    const report = h("div", { class: "report" });
    if (html instanceof Error) report.append(errorBox(html));
    else {
      report.innerHTML = html;
      citations(report, id);
    }
    return h("section", {}, h("h2", {}, h("a", { href: `#/runs/${id}` }, run.question)),
      h("p", { class: "quiet" }, `${(run.reason ?? STATES[run.state]).replaceAll("_", " ")} · ${counted(run.nodes.length, "sub-question")} · ${thousands(run.tokens)} tokens · ${dollars(run.cost_usd)} · ${time(run.seconds)}`), report);
  }));
  show("Compare", h("h1", {}, "Two runs"), h("div", { class: "compare" }, sides));
}

// ---- views

let leaving = new AbortController();

function show(title, ...children) {
  document.title = `${title} – dr`;
  view.replaceChildren(...children.flat().filter(Boolean));
}

const VIEWS = { ask: askView, search: searchView, runs: runsView, compare: compareView };

async function route() {
  leaving.abort();
  leaving = new AbortController();
  if (reader.open) reader.close();
  const mine = leaving;
  const [name, ...rest] = (location.hash.slice(2).split("?")[0] || "ask").split("/").map(decodeURIComponent);
  document.querySelectorAll(".bar nav a").forEach((a) => {
    if (a.getAttribute("href") === `#/${name}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  });
  try {
    if (name === "runs" && rest[0]) await runView(rest[0]);
    else await (VIEWS[name] ?? askView)(...rest);
  } catch (error) {
    if (mine !== leaving || error.name === "AbortError") return;
    show("Error", h("h1", {}, "This did not work"), errorBox(error), h("div", { class: "row" }, h("button", { type: "button", onclick: route }, "Try again")));
  }
}

addEventListener("hashchange", route);
route();
