import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  MaskedRequestSettings,
  RequestSettingsSchema,
} from "../../../../../gen/webhook/v1/request_settings_pb.ts";
import type { OAuth2Values } from "./oauth2-fields.tsx";

/** A kind of authentication. */
export type Kind = "none" | "basic" | "bearer" | "oauth2";

/** The labels of the secrets of each kind. */
export const SECRET_LABELS = { basic: "Password", bearer: "Token", oauth2: "Client secret" };

/** The kind of the stored authentication. */
export function kindOf({ basicUsername, oauth2, hasBearerToken }: MaskedRequestSettings): Kind {
  if (basicUsername !== undefined) return "basic";
  if (oauth2) return "oauth2";
  return hasBearerToken ? "bearer" : "none";
}

/** The values of the fields. An empty secret keeps the stored one. */
export interface AuthenticationValues {
  username: string;
  secret: string;
  oauth2: OAuth2Values;
}

/** The authentication to send. */
export function authenticationMessage(
  kind: Kind,
  { username, secret, oauth2 }: AuthenticationValues,
): Pick<MessageInitShape<typeof RequestSettingsSchema>, "authentication"> {
  const given = <Name extends string>(name: Name) => (secret === "" ? {} : { [name]: secret });
  switch (kind) {
    case "none":
      return {};
    case "basic":
      return { authentication: { case: kind, value: { username, ...given("password") } } };
    case "bearer":
      return { authentication: { case: kind, value: given("token") } };
    case "oauth2":
      return { authentication: { case: kind, value: { ...oauth2, ...given("clientSecret") } } };
  }
}
