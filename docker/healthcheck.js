// Asks this container's service whether it is alive: exit code 0 or 1. By its own certificate, whoever signed that.
const secure = Boolean(process.env.TLS_CERT);
const { get } = await import(secure ? "node:https" : "node:http");
const options = {
  host: "127.0.0.1",
  port: process.env.HTTP_PORT,
  path: "/healthz",
  rejectUnauthorized: false,
};

get(options, (response) => process.exit(response.statusCode === 200 ? 0 : 1)).on("error", () =>
  process.exit(1),
);
