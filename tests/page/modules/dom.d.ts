// What the page knows of the elements that it asks the document for; the libraries' types know only that they are elements.

interface EventTarget {
  closest(selector: string): any;
}

interface Element {
  checked: boolean;
  dataset: DOMStringMap;
  focus(): void;
  href: string;
  open: boolean;
  value: string;
}
