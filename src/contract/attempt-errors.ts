/** The starts of errors of attempts that a connection did not cause. What explains attempts knows them by these (`failureCause`). */
export const ATTEMPT_ERRORS = {
  /** No response within the timeout. */
  noResponse: "no response",
  /** No connection within the timeout. */
  noConnection: "no connection",
  /** Followed by the host of the token endpoint. */
  tokenEndpoint: "token endpoint ",
} as const;
