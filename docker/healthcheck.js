// Asks this container's service whether it is alive: exit code 0 or 1. On METRICS_PORT, if there is one, because callers may use
// up the connections of the other port. By its own certificate, whoever signed that.
const { HOST, HTTP_PORT, METRICS_PORT, TLS_CERT } = process.env;
const secure = Boolean(TLS_CERT) && !METRICS_PORT;
const { get } = await import(secure ? "node:https" : "node:http");
const options = {
  host: HOST || "127.0.0.1",
  port: METRICS_PORT || HTTP_PORT,
  path: "/healthz",
  rejectUnauthorized: false,
};

get(options, (response) => process.exit(response.statusCode === 200 ? 0 : 1)).on("error", () =>
  process.exit(1),
);
