// Run in the browser, by /docs.

/**
 * Shows answers with every digit of their numbers: the page itself parses them to indent them, and rounds what is
 * beyond 2^53. Browsers that cannot do better show them as they came.
 */
function exactAnswers() {
  const keepDigits = (_name, value, { source }) => (typeof value === "number" ? JSON.rawJSON(source) : value);
  const indented = (content) => {
    try {
      return JSON.stringify(JSON.parse(content, keepDigits), null, 2);
    } catch {
      return content;
    }
  };
  const wrap =
    (ResponseBody, { React }) =>
    (props) =>
      typeof props.content === "string"
        ? // As JSON it would be parsed once more.
          React.createElement(ResponseBody, {
            ...props,
            content: indented(props.content),
            contentType: "text",
          })
        : React.createElement(ResponseBody, props);
  return { wrapComponents: { responseBody: wrap } };
}

window.SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  plugins: [exactAnswers],
  // The validator would be asked over the internet.
  validatorUrl: null,
  // A key typed into the page is forgotten when it closes.
  persistAuthorization: false,
});
