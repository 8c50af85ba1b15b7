// What the page knows: the newest rows, and what each host has come to.
// A connection is one row, from its decision to its end; what is said of it later is found by session and id.

export const KEPT = 10000;
const MOST_HOSTS = 2000;
export const BUCKETS = 30;
const BUCKET = 60_000; // a minute each: the last half hour

export class Store {
  constructor() {
    this.rows = []; // the oldest first
    this.hosts = new Map();
    this.count = 0; // of all rows there ever were: each has its number
    this.open = new Map();
  }

  /** Takes records of the log in; the rows that are new. */
  add(records) {
    const fresh = [];
    for (const record of records) {
      const row = this.take(record);
      if (row) fresh.push(Object.assign(row, { number: (this.count += 1) }));
    }
    this.rows.push(...fresh);
    const surplus = this.rows.length - KEPT;
    if (surplus > 0) this.forget(surplus);
    return fresh;
  }

  take(record) {
    if (record.event === "end") return this.end(record);
    if (record.event !== "decision") return note(record);
    const known = this.open.get(key(record));
    if (known) return this.revise(known, record);
    const row = asRow(record);
    this.open.set(key(record), row);
    this.tally(row, 1);
    return row;
  }

  end(record) {
    const row = this.open.get(key(record));
    if (!row) return null;
    row.end = record;
    if (this.hosts.has(row.host)) {
      const host = this.hosts.get(row.host);
      host.up += record.up;
      host.down += record.down;
    }
    return null;
  }

  /** Allowed by name and then refused on its way: the last word counts. */
  revise(row, record) {
    this.tally(row, -1);
    Object.assign(row, { verdict: record.verdict, reason: record.reason, rule: record.rule });
    this.tally(row, 1);
    return null;
  }

  tally(row, by) {
    if (row.via === "dns" || !row.host) return; // of a name that was asked for, the connection that follows counts
    const host = this.host(row.host);
    const bucket = Math.floor(row.at / BUCKET);
    host[row.verdict] += by;
    host.last = Math.max(host.last, row.at);
    host.spark[row.verdict].set(bucket, Math.max(0, (host.spark[row.verdict].get(bucket) || 0) + by));
  }

  host(name) {
    let host = this.hosts.get(name);
    if (!host) {
      host = { name, allow: 0, deny: 0, up: 0, down: 0, last: 0, spark: { allow: new Map(), deny: new Map() } };
      this.hosts.set(name, host);
      if (this.hosts.size > MOST_HOSTS) this.hosts.delete(this.hosts.keys().next().value);
    }
    return host;
  }

  forget(count) {
    for (const row of this.rows.splice(0, count)) this.open.delete(row.key);
  }
}

/** A host's counts per minute, the oldest first. */
export function minutes(host, verdict, now) {
  const last = Math.floor(now / BUCKET);
  const counts = host.spark[verdict];
  for (const bucket of counts.keys()) if (bucket <= last - BUCKETS) counts.delete(bucket);
  return Array.from({ length: BUCKETS }, (_, place) => counts.get(last - BUCKETS + 1 + place) || 0);
}

const key = (record) => `${record.session}/${record.id}`;

function asRow(record) {
  return { ...record, key: key(record), at: Date.parse(record.ts) || 0, end: null, words: searchable(record) };
}

function searchable(record) {
  const program = record.process ? `${record.process.exe || ""} ${record.process.command || ""}` : "";
  const parts = [record.host, record.port, record.persona, record.via, record.reason, record.method, record.path, program];
  return parts.filter(Boolean).join(" ").toLowerCase();
}

function note(record) {
  let text = record.event;
  if (record.event === "policy") text = record.error ? `policy not reloaded: ${record.error}` : `policy reloaded, generation ${record.generation}`;
  if (record.event === "gap") text = `${record.lost} records were lost while the log could not be written`;
  return {
    ...record, key: key(record), at: Date.parse(record.ts) || 0, host: text, port: null, verdict: "note", reason: "",
    via: "", end: null, words: text.toLowerCase(),
  };
}

/** Whether a row is wanted: all words occur in it, its verdict and its persona are those asked for. */
export function matcher(text, verdict, persona) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return (row) =>
    (!verdict || row.verdict === verdict) &&
    (!persona || row.persona === persona || row.verdict === "note") &&
    words.every((word) => row.words.includes(word));
}
