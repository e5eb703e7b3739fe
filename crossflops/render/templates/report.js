"use strict";
// Tables that sort and search, a tree that opens, a map of it to drill into. Every number is read
// from the tables: nothing else is in this file. Counts are BigInt, exact at any size.
(() => {
  const make = (tag, fields = {}, ...inside) => {
    const element = Object.assign(document.createElement(tag), fields);
    element.append(...inside);
    return element;
  };
  const body = table => Array.from(table.tBodies[0].rows);
  const digits = text => text.replace(/[\s\u00a0+]/g, "");
  // An integer of any size, else a number, else nothing.
  const value = text => {
    const plain = digits(text);
    if (/^-?\d+$/.test(plain)) return BigInt(plain);
    const number = parseFloat(plain);
    return Number.isNaN(number) ? null : number;
  };
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const share = (part, whole) => {
    if (!whole) return 0;
    if (typeof part !== "bigint" || typeof whole !== "bigint") return Number(part) / Number(whole);
    return Number((part * 1000000n) / whole) / 1000000;
  };
  const percent = ratio => `${(ratio * 100).toFixed(ratio < 0.01 ? 2 : 1)} %`;

  const sorting = table => {
    const order = body(table);
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      if (head.tagName !== "TH") return;
      const button = make("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const was = head.getAttribute("aria-sort");
        const numeric = head.classList.contains("n");
        const first = numeric ? "descending" : "ascending";
        const second = numeric ? "ascending" : "descending";
        const now = was === null ? first : was === first ? second : null;
        heads.forEach(other => other.removeAttribute("aria-sort"));
        let rows = order;
        if (now) {
          head.setAttribute("aria-sort", now);
          const sign = now === "ascending" ? 1 : -1;
          const keyed = order.map(row => {
            const text = row.cells[column].textContent;
            return [numeric ? value(text) : text.toLowerCase(), row];
          });
          keyed.sort((a, b) => {
            if (a[0] === null || b[0] === null) return (a[0] === null) - (b[0] === null);
            return sign * compare(a[0], b[0]);
          });
          rows = keyed.map(pair => pair[1]);
        }
        table.tBodies[0].append(...rows);
      });
    });
  };

  const searching = table => {
    const rows = body(table);
    const texts = rows.map(row => row.textContent.toLowerCase());
    const input = make("input", { type: "search" });
    const said = make("output", {}, `${rows.length} rows`);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      rows.forEach((row, place) => {
        row.hidden = !words.every(word => texts[place].includes(word));
        left += row.hidden ? 0 : 1;
      });
      said.textContent = left === rows.length ? `${left} rows` : `${left} of ${rows.length} rows`;
    });
    const label = make("label", {}, "Search ", input);
    table.closest(".scroll").before(make("div", { className: "tools" }, label, said));
  };

  // A tree: rows with a level, each before what lies in it.
  const tree = table => {
    const rows = body(table);
    const nodes = rows.map(row => ({ row, level: +row.getAttribute("aria-level"), inside: [] }));
    const path = [];
    for (const node of nodes) {
      path.length = node.level - 1;
      node.above = path[path.length - 1] || null;
      if (node.above) node.above.inside.push(node);
      path.push(node);
      node.name = node.row.cells[0].textContent;
    }
    return nodes;
  };

  const opening = (table, nodes) => {
    const shown = +table.dataset.shown;
    const refresh = () => {
      for (const node of nodes) {
        node.row.hidden = Boolean(node.above && (node.above.row.hidden || !node.above.open));
      }
    };
    for (const node of nodes) {
      node.open = node.level < shown;
      const cell = node.row.cells[0];
      cell.style.paddingLeft = `${(node.level - 1) * 0.9 + 0.4}rem`;
      if (!node.inside.length) {
        node.row.removeAttribute("aria-expanded");
        cell.style.paddingLeft = `${(node.level - 1) * 0.9 + 1.8}rem`;
        continue;
      }
      const button = make("button", { type: "button", className: "open" });
      const set = open => {
        node.open = open;
        node.row.setAttribute("aria-expanded", String(open));
        button.textContent = open ? "▾" : "▸";
        button.setAttribute("aria-label", `${open ? "Close" : "Open"} ${node.name}`);
      };
      set(node.open);
      button.addEventListener("click", () => { set(!node.open); refresh(); });
      button.addEventListener("keydown", event => {
        const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
        if (event.key === "ArrowRight") set(true);
        else if (event.key === "ArrowLeft") set(false);
        else if (step) {
          const all = Array.from(table.querySelectorAll("tr:not([hidden]) .open"));
          const next = all[all.indexOf(button) + step];
          if (next) next.focus();
        } else return;
        event.preventDefault();
        refresh();
      });
      cell.prepend(button);
    }
    refresh();
  };

  const DEPTH = 6, HEIGHT = 30, LEAST = 0.003;
  const icicle = (place, table, nodes) => {
    const metrics = Array.from(table.tHead.rows[0].cells)
      .map((head, column) => ({ column, name: head.textContent, on: head.dataset.metric !== undefined }))
      .filter(metric => metric.on && value(nodes[0].row.cells[metric.column].textContent) > 0);
    if (!metrics.length || nodes.length < 2) return;
    place.hidden = false;
    const select = make("select");
    metrics.forEach((metric, n) => select.append(make("option", { value: n }, metric.name)));
    const trail = make("div", { className: "trail" });
    const map = make("div", { className: "map" });
    map.setAttribute("role", "group");
    const told = make("p", { className: "told" });
    told.setAttribute("aria-live", "polite");
    place.append(
      make("div", { className: "tools" }, make("label", {}, "Size by ", select)), trail, map, told);
    let root = nodes[0];
    const amount = (node, metric) => value(node.row.cells[metric.column].textContent) ?? 0n;
    const words = (node, metric, whole) => {
      const text = node.row.cells[metric.column].textContent;
      const what = table.tHead.rows[0].cells[1].classList.contains("n") ? "" : node.row.cells[1].textContent;
      return `${node.name}${what ? `, ${what}` : ""}: ${text} ${metric.name}, ` +
        `${percent(share(amount(node, metric), whole))} of the model`;
    };
    const draw = focus => {
      const metric = metrics[+select.value];
      const whole = amount(nodes[0], metric);
      const top = amount(root, metric);
      const cells = [];
      let small = 0, deepest = 0, more = false;
      const lay = (node, left, width, depth, colour) => {
        if (width < LEAST) { small += 1; return; }
        if (depth >= DEPTH) { more = true; return; }
        deepest = Math.max(deepest, depth);
        const cell = make("button", { type: "button", className: `p${colour}` },
          width < 0.02 ? "" : node.level > 1 ? node.name.split(".").pop() : node.name);
        const text = words(node, metric, whole);
        cell.title = text;
        cell.setAttribute("aria-label", text);
        Object.assign(cell.style, { left: `${left * 100}%`, width: `${width * 100}%`, top: `${depth * HEIGHT}px` });
        cell.addEventListener("focus", () => { told.textContent = text; });
        cell.addEventListener("pointerenter", () => { told.textContent = text; });
        cell.addEventListener("click", () => {
          if (!node.inside.length) return;
          root = node === root && node.above ? node.above : node;
          draw(true);
        });
        cells.push(cell);
        let start = left;
        node.inside.forEach((child, n) => {
          const part = top ? share(amount(child, metric), top) : 0;
          if (part > 0) lay(child, start, part, depth + 1, depth === 0 ? n % 6 : colour);
          start += part;
        });
      };
      lay(root, 0, 1, 0, 6);
      map.replaceChildren(...cells);
      map.style.height = `${(deepest + 1) * HEIGHT}px`;
      map.setAttribute("aria-label", `Map of ${root.name} by ${metric.name}`);
      const steps = [];
      for (let node = root; node; node = node.above) steps.unshift(node);
      trail.replaceChildren(...steps.flatMap((node, n) => {
        const button = make("button", { type: "button" }, node.name);
        if (node === root) button.setAttribute("aria-current", "true");
        button.addEventListener("click", () => { root = node; draw(true); });
        return n ? ["›", button] : [button];
      }));
      const hints = [small ? `${small} ${small === 1 ? "part is" : "parts are"} too narrow to draw.` : "", more ? "There are deeper levels." : ""];
      told.textContent = `${words(root, metric, whole)}. Choose a part to open it. ${hints.join(" ")}`;
      if (focus && cells.length) cells[0].focus();
    };
    select.addEventListener("change", () => draw(false));
    draw(false);
  };

  document.documentElement.classList.add("scripted");
  document.querySelectorAll("table[data-sort]").forEach(sorting);
  document.querySelectorAll("table[data-search]").forEach(searching);
  document.querySelectorAll("table[role=treegrid]").forEach(table => {
    const nodes = tree(table);
    if (!nodes.length) return;
    icicle(table.closest("section").querySelector(".icicle"), table, nodes);
    opening(table, nodes);
  });
})();
