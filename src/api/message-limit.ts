/** The largest message that is read, in bytes, unpacked: a payload of 256 KiB fits in every encoding. */
export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;
