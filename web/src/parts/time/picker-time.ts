/** The format of what date pickers take and give: the viewer's time without a zone. */
export const PICKER_TIME = "YYYY-MM-DD HH:mm:ss";
