// Puts the page together.

const THEMES = ["system", "light", "dark"];

function watchTheme() {
  const button = document.getElementById("theme");
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "system";
    const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
    document.documentElement.dataset.theme = next;
    button.textContent = `Theme: ${next}`;
  });
}

/** `/` goes to the search of the tensors. */
function watchKeys(table) {
  document.addEventListener("keydown", (event) => {
    const types = event.target.closest?.("input, select, textarea, dialog[open]");
    if (event.key !== "/" || types || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    document.getElementById("tensors").scrollIntoView();
    table.search.focus({ preventScroll: true });
    table.search.select();
  });
}

function build(data) {
  const tensors = new Tensors(data);
  const details = new Details(tensors);
  const map = new WeightMap(data, tensors);
  const all = tensorsSection(tensors, details);
  const differences = data.differences ? differencesSection(data.differences, tensors, details) : null;
  const nodes = [
    overview(data),
    differences?.node,
    map.node,
    all.node,
    filesSection(data, tensors),
    data.plan ? planSection(data.plan) : null,
    operatorsSection(data),
    valuesSection(data),
    findingsSection(data, tensors),
  ].filter(Boolean);
  document.getElementById("main").replaceChildren(...nodes);
  const link = (node) => element("a", { href: `#${node.id}` }, node.querySelector("h2").textContent);
  document.getElementById("nav").replaceChildren(...nodes.map(link));
  document.getElementById("subtitle").textContent = subtitle(data);
  document.getElementById("footer").textContent = `Made by ${data.program}. The page is one file and asks for nothing on the network.`;
  map.ready();
  all.table.ready();
  differences?.table?.ready();
  watchKeys(all.table);
  watchTheme();
  const { hash } = location;
  if (hash.startsWith("#tensor=")) details.follow();
  else if (hash.length > 1) document.getElementById(hash.slice(1))?.scrollIntoView();
}

function subtitle({ summary, findings, differences }) {
  const parts = [`${short(summary.parameters)} parameters`, count(summary.totals.tensors, "tensor")];
  const producer = [summary.producer, summary.producer_version].filter(Boolean).join(" ");
  if (producer) parts.push(cut(producer, 60));
  const errors = findings.list.filter(({ severity }) => severity === "error").length;
  parts.push(findings.ok ? "no errors found" : count(errors, "error"));
  if (differences) parts.push(differences.found.same ? "same content as the other" : "differs from the other");
  return parts.join(" · ");
}

readData()
  .then(build)
  .then(() => {
    document.documentElement.dataset.ready = "yes";
  })
  .catch((error) => {
    const text = `The page could not be drawn: ${error.message}`;
    document.getElementById("main").replaceChildren(element("p", { class: "notice bad" }, text));
    document.documentElement.dataset.ready = "failed";
  });
