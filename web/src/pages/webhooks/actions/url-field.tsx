import { TextInput, type TextInputProps } from "@mantine/core";

/** The URL of a webhook's endpoint, in a form; `input` is what the form gives for it. */
export function UrlField(input: TextInputProps) {
  return (
    <TextInput
      label="URL"
      description="HTTPS endpoint that receives the POST. It must be reachable from the internet."
      placeholder="https://example.com/hooks"
      type="url"
      inputMode="url"
      autoComplete="off"
      spellCheck={false}
      required
      {...input}
    />
  );
}
