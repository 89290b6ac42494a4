/** Whether a call has its messages in JSON, over any protocol. @param url of Connect's GET, which names the encoding there */
export function speaksJson(header: Headers, url: string): boolean {
  return /json/i.test(header.get("Content-Type") ?? "") || /[?&]encoding=json(&|$)/.test(url);
}
