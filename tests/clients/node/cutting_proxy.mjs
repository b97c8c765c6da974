// A TCP proxy that drops connections in mid-stream, as networks do.

import net from "node:net";

/**
 * Stands before `target` (a URL) and cuts its connections: the first after `cuts[0]` events of
 * what comes back, the second after `cuts[1]`, and so on; later ones live. A cut falls within an
 * event, so that the client sees a torn one.
 */
export async function startCuttingProxy(target, cuts) {
  const { hostname, port } = new URL(target);
  const remaining = [...cuts];
  const sockets = new Set();
  const proxy = { cutsMade: 0 };

  const server = net.createServer((client) => {
    const upstream = net.connect(Number(port), hostname);
    const limit = remaining.shift();
    let events = 0;
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => sockets.delete(socket));
    }
    client.on("close", () => upstream.destroy());
    upstream.on("close", () => client.end());
    client.pipe(upstream);
    upstream.on("data", (bytes) => {
      const cutAt = limit === undefined ? -1 : findCut(bytes, limit - events);
      if (cutAt < 0) {
        events += countEvents(bytes);
        client.write(bytes);
        return;
      }
      proxy.cutsMade += 1;
      upstream.destroy();
      // The body's last chunk never comes, so that this is a broken answer and not a short one.
      client.end(bytes.subarray(0, cutAt));
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

  proxy.url = `http://127.0.0.1:${server.address().port}`;
  proxy.close = () => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  };
  return proxy;
}

// An event begins with its id; the line's end before it tells it from `x-request-id: `.
const EVENT = Buffer.from("\nid: ");

function countEvents(bytes) {
  let count = 0;
  for (let at = bytes.indexOf(EVENT); at >= 0; at = bytes.indexOf(EVENT, at + 1)) count += 1;
  return count;
}

/** Where to cut, a little into the event after the first `left` ones; -1: not in these bytes. */
function findCut(bytes, left) {
  let at = bytes.indexOf(EVENT);
  for (let seen = 0; at >= 0 && seen < left; seen += 1) at = bytes.indexOf(EVENT, at + 1);
  return at < 0 ? -1 : Math.min(at + 12, bytes.length);
}
