package resend

// FreshID is freshID.
var FreshID = freshID
